#include "runtime/worker/rank_order_sum.h"

#include <random>
#include <vector>

#include "gtest/gtest.h"

namespace trainctl {
namespace {

TEST(RankOrderSum, AddsFromTheLowestRankUpAlsoInPlace) {
  std::mt19937 random(1);
  std::uniform_real_distribution<float> value(-1e6f, 1e6f);
  for (size_t ranks = 1; ranks <= 5; ++ranks) {
    for (size_t count : {1u, 15u, 1024u, 2500u}) {
      std::vector<std::vector<float>> data(ranks, std::vector<float>(count));
      for (auto& one : data) {
        for (float& x : one) x = value(random) * value(random);
      }
      std::vector<float> expected = data[0];
      for (size_t rank = 1; rank < ranks; ++rank) {
        for (size_t i = 0; i < count; ++i) expected[i] += data[rank][i];
      }
      for (size_t in_place = 0; in_place <= ranks; ++in_place) {
        std::vector<std::vector<float>> copy = data;
        std::vector<float> apart(count);
        std::vector<const float*> sources;
        for (auto& one : copy) sources.push_back(one.data());
        float* out = in_place < ranks ? copy[in_place].data() : apart.data();
        SumInRankOrder(sources, out, count);
        EXPECT_EQ(std::vector<float>(out, out + count), expected);
      }
    }
  }
}

}  // namespace
}  // namespace trainctl
