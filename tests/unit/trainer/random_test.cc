#include "runtime/trainer/random.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace trainctl {
namespace {

TEST(Random, StreamsDifferByEachPartOfTheirKey) {
  const auto first = [](uint64_t seed, RandomPurpose purpose, uint64_t number, uint32_t place) {
    const auto key = StreamKey(seed, purpose, number, place);
    return uint64_t{key.word[0]} << 32 | key.word[1];
  };
  const uint64_t base = first(1, RandomPurpose::kDropout, 2, 3);
  EXPECT_EQ(base, first(1, RandomPurpose::kDropout, 2, 3));
  EXPECT_NE(base, first(1ULL << 32, RandomPurpose::kDropout, 2, 3));
  EXPECT_NE(base, first(1, RandomPurpose::kInitialize, 2, 3));
  EXPECT_NE(base, first(1, RandomPurpose::kDropout, 2 + (1ULL << 32), 3));
  EXPECT_NE(base, first(1, RandomPurpose::kDropout, 2, 4));
}

TEST(Random, AShorterFillIsAPrefixOfALongerOne) {
  std::vector<float> a(7), b(1000);
  const auto key = StreamKey(1, RandomPurpose::kInitialize, 0);
  FillNormal(key, 0, 1, a.data(), 7);
  FillNormal(key, 0, 1, b.data(), 1000);
  EXPECT_EQ(a, std::vector<float>(b.begin(), b.begin() + 7));
}

TEST(Random, FillsHaveTheStatedMoments) {
  constexpr int64_t kSize = 100'001;
  std::vector<float> x(kSize);
  const auto moments = [&] {
    double sum = 0, squares = 0;
    for (float v : x) {
      sum += v;
      squares += static_cast<double>(v) * v;
    }
    const double mean = sum / kSize;
    return std::pair(mean, squares / kSize - mean * mean);
  };
  FillUniform(StreamKey(1, RandomPurpose::kInitialize, 0), -2, 4, x.data(), kSize);
  for (float v : x) EXPECT_TRUE(v >= -2 && v < 4);
  EXPECT_NEAR(moments().first, 1, 0.03);
  EXPECT_NEAR(moments().second, 3, 0.05);
  FillNormal(StreamKey(1, RandomPurpose::kInitialize, 1), 5, 0.5, x.data(), kSize);
  EXPECT_NEAR(moments().first, 5, 0.01);
  EXPECT_NEAR(moments().second, 0.25, 0.01);
}

}  // namespace
}  // namespace trainctl
