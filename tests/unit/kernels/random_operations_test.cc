#include <gtest/gtest.h>

#include "kernels/dropout.h"
#include "kernels/philox.h"
#include "tests/unit/kernels/compare.h"

namespace trainctl {
namespace {

TEST(Philox, GivesTheKnownAnswersOfItsAuthors) {
  const auto zero = ops::Philox({{0, 0}}, {{0, 0, 0, 0}});
  EXPECT_EQ(zero.word[0], 0x6627e8d5u);
  EXPECT_EQ(zero.word[1], 0xe169c58du);
  EXPECT_EQ(zero.word[2], 0xbc57ac4cu);
  EXPECT_EQ(zero.word[3], 0x9b00dbd8u);
  const auto pi =
      ops::Philox({{0xa4093822, 0x299f31d0}}, {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}});
  EXPECT_EQ(pi.word[0], 0xd16cfe09u);
  EXPECT_EQ(pi.word[1], 0x94fdccebu);
  EXPECT_EQ(pi.word[2], 0x5001e420u);
  EXPECT_EQ(pi.word[3], 0x24126ea1u);
}

TEST(Dropout, DropsTheGivenShareAndScalesTheRest) {
  constexpr int64_t kSamples = 100, kWidth = 1003;
  std::vector<int64_t> ids;
  for (int64_t i = 0; i < kSamples; ++i) ids.push_back(i);
  std::vector<float> x(kSamples * kWidth, 1.0f);
  ops::Dropout({{1, 2}}, 0.25, ids.data(), x.data(), kSamples, kWidth);
  int64_t dropped = 0;
  for (float v : x) {
    EXPECT_TRUE(v == 0.0f || v == 1.0f / 0.75f);
    dropped += v == 0.0f;
  }
  // Five deviations of a binomial.
  EXPECT_NEAR(static_cast<double>(dropped), 0.25 * kSamples * kWidth,
              5 * std::sqrt(0.25 * 0.75 * kSamples * kWidth));
}

TEST(Dropout, DependsOnTheSamplesNumberAndNotOnItsPlaceInTheBatch) {
  const std::vector<int64_t> ids = {5, 1LL << 40, 7};
  std::vector<float> together(3 * 50, 1.0f), alone(50, 1.0f);
  ops::Dropout({{1, 2}}, 0.5, ids.data(), together.data(), 3, 50);
  ops::Dropout({{1, 2}}, 0.5, ids.data() + 1, alone.data(), 1, 50);
  EXPECT_EQ(alone, std::vector<float>(together.begin() + 50, together.begin() + 100));
  EXPECT_NE(alone, std::vector<float>(together.begin(), together.begin() + 50));
}

TEST(Dropout, AnotherKeyGivesAnotherMask) {
  const int64_t id = 3;
  std::vector<float> a(64, 1.0f), b(64, 1.0f);
  ops::Dropout({{1, 2}}, 0.5, &id, a.data(), 1, 64);
  ops::Dropout({{1, 3}}, 0.5, &id, b.data(), 1, 64);
  EXPECT_NE(a, b);
}

}  // namespace
}  // namespace trainctl
