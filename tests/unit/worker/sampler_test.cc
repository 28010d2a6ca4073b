#include "runtime/worker/sampler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

namespace trainctl {
namespace {

using testing::SizeIs;

// All samples of `steps` global batches, ranks in order.
std::vector<int64_t> Order(Sampler sampler, int world_size, int64_t steps) {
  std::vector<int64_t> order;
  for (int64_t step = 0; step < steps; ++step, sampler.Advance()) {
    for (int rank = 0; rank < world_size; ++rank) {
      for (int64_t id : sampler.Share(rank, world_size)) order.push_back(id);
    }
  }
  return order;
}

TEST(Permutation, HoldsEverySampleOnceAtAnySize) {
  for (int64_t size : {1, 2, 3, 4, 5, 15, 16, 17, 63, 64, 65, 1000, 4097, 60000}) {
    std::vector<bool> seen(static_cast<size_t>(size));
    const Permutation permutation(size, 1, 0);
    for (int64_t i = 0; i < size; ++i) {
      const int64_t value = permutation[i];
      ASSERT_TRUE(value >= 0 && value < size && !seen[value]) << size;
      seen[value] = true;
    }
  }
}

TEST(Permutation, OfABillionNeedsNoMemoryAndRepeatsNothing) {
  const int64_t size = 1'000'000'007;
  const Permutation permutation(size, 3, 2);
  std::set<int64_t> seen;
  for (int64_t i = 0; i < 20000; ++i) seen.insert(permutation[size - 1 - i]);
  EXPECT_THAT(seen, SizeIs(20000));
  EXPECT_GE(*seen.begin(), 0);
  EXPECT_LT(*seen.rbegin(), size);
}

TEST(Permutation, ValueIsSpreadOverItsWholeRange) {
  // Chi-squared of where the first tenth of 60 000 places goes, in 20 cells: 19 degrees of freedom,
  // 43.8 is exceeded once in a thousand.
  for (uint64_t seed : {1, 2, 3}) {
    const Permutation permutation(60000, seed, 5);
    double cells[20] = {};
    for (int64_t i = 0; i < 6000; ++i) cells[permutation[i] / 3000] += 1;
    double chi = 0;
    for (double cell : cells) chi += (cell - 300) * (cell - 300) / 300;
    EXPECT_LT(chi, 43.8);
  }
}

TEST(Permutation, SeedAndNumberBothChangeIt) {
  const auto first = [](uint64_t seed, uint64_t number) {
    const Permutation permutation(60000, seed, number);
    std::vector<int64_t> values;
    for (int64_t i = 0; i < 50; ++i) values.push_back(permutation[i]);
    return values;
  };
  EXPECT_EQ(first(1, 0), first(1, 0));
  EXPECT_NE(first(1, 0), first(2, 0));
  EXPECT_NE(first(1, 0), first(1, 1));
  EXPECT_NE(first(0, 1), first(1, 0));
}

TEST(Sampler, OrderIsTheSameForAnyNumberOfRanks) {
  const std::vector<int64_t> expected = Order(Sampler(1000, 64, 1), 1, 40);
  for (int world_size : {2, 3, 4, 7, 64, 100}) {
    EXPECT_EQ(Order(Sampler(1000, 64, 1), world_size, 40), expected) << world_size;
  }
}

TEST(Sampler, EveryPassHasEachSampleOnceAndEndsWithAShortBatch) {
  Sampler sampler(1000, 64, 1);
  EXPECT_EQ(sampler.batches_per_pass(), 16);
  std::vector<int64_t> order;
  for (int batch = 0; batch < 16; ++batch, sampler.Advance()) {
    EXPECT_EQ(sampler.batch_size(), batch < 15 ? 64 : 40);
    EXPECT_EQ(sampler.position(), (SamplerPosition{0, batch * 64}));
    for (int64_t id : sampler.Share(0, 1)) order.push_back(id);
  }
  EXPECT_EQ(sampler.position(), (SamplerPosition{1, 0}));
  std::sort(order.begin(), order.end());
  for (int64_t i = 0; i < 1000; ++i) ASSERT_EQ(order[i], i);
}

TEST(Sampler, SomeRanksOfAShortBatchGetNothing) {
  Sampler sampler(10, 8, 1);
  sampler.Advance();
  EXPECT_THAT(sampler.Share(0, 4), SizeIs(1));
  EXPECT_THAT(sampler.Share(1, 4), SizeIs(1));
  EXPECT_THAT(sampler.Share(2, 4), SizeIs(0));
  EXPECT_THAT(sampler.Share(3, 4), SizeIs(0));
}

TEST(Sampler, GoesOnFromAnyPositionAsIfNeverStopped) {
  const std::vector<int64_t> whole = Order(Sampler(500, 64, 9), 2, 30);
  Sampler sampler(500, 64, 9);
  size_t done = 0;
  for (int step = 0; step < 30; ++step, sampler.Advance()) {
    const std::vector<int64_t> rest = Order(Sampler(500, 64, 9, sampler.position()), 3, 30 - step);
    ASSERT_TRUE(std::equal(rest.begin(), rest.end(), whole.begin() + static_cast<long>(done)));
    done += static_cast<size_t>(sampler.batch_size());
  }
}

TEST(Sampler, BatchLargerThanTheDataIsOnePass) {
  Sampler sampler(5, 64, 1);
  EXPECT_EQ(sampler.batch_size(), 5);
  sampler.Advance();
  EXPECT_EQ(sampler.position(), (SamplerPosition{1, 0}));
}

TEST(ShareOf, DividesAllInRankOrder) {
  for (int64_t count : {0, 1, 3, 4, 7, 64}) {
    int64_t next = 0;
    for (int rank = 0; rank < 4; ++rank) {
      const ShareRange range = ShareOf(count, rank, 4);
      EXPECT_EQ(range.begin, next);
      EXPECT_LE(range.end - range.begin, count / 4 + 1);
      next = range.end;
    }
    EXPECT_EQ(next, count);
  }
}

}  // namespace
}  // namespace trainctl
