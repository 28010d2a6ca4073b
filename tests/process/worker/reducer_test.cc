#include "runtime/worker/reducer.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/base/check.h"
#include "runtime/base/mutex.h"
#include "tests/process/worker/fake_supervisor.h"

namespace trainctl {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const std::vector<int64_t> kSizes = {70'001, 17, 30'000, 1, 64, 5};

// Gradient that one sample gives to one element of one parameter.
float Gradient(int sample, int parameter, int64_t i) {
  const float scale = std::ldexp(1.0f, (sample * 7 + parameter * 5) % 16 - 8);
  return scale * static_cast<float>((i * 37 + sample) % 97 - 48) / 3;
}

void AddSample(Reducer& reducer, int sample, int parameter) {
  float* gradient = reducer.gradient(parameter);
  for (int64_t i = 0; i < kSizes[static_cast<size_t>(parameter)]; ++i) {
    gradient[i] += Gradient(sample, parameter, i);
  }
}

std::unique_ptr<Reducer> Make(Communicator& communicator, ReducerOptions options = {}) {
  auto reducer = Reducer::Create(&communicator, kSizes, std::move(options));
  CHECK(reducer.ok());
  return *std::move(reducer);
}

int Last() { return static_cast<int>(kSizes.size()) - 1; }

// One step in which this rank's micro-batches consist of these samples.
absl::Status OneStep(Reducer& reducer, const std::vector<std::vector<int>>& micro_batches) {
  if (absl::Status begun = reducer.BeginStep(static_cast<int>(micro_batches.size())); !begun.ok()) {
    return begun;
  }
  for (const std::vector<int>& samples : micro_batches) {
    for (int p = Last(); p >= 0; --p) {
      for (const int sample : samples) AddSample(reducer, sample, p);
      reducer.MarkReady(p);
    }
    reducer.FinishMicroBatch();
  }
  return reducer.Wait();
}

std::vector<float> AllGradients(Reducer& reducer) {
  std::vector<float> all;
  for (int p = 0; p <= Last(); ++p) {
    all.insert(all.end(), reducer.gradient(p),
               reducer.gradient(p) + kSizes[static_cast<size_t>(p)]);
  }
  return all;
}

// The samples' sum within each rank first, then over ranks in order: what the reducer promises.
std::vector<float> Expected(const std::vector<std::vector<int>>& samples_by_rank) {
  std::vector<float> all;
  for (int p = 0; p <= Last(); ++p) {
    for (int64_t i = 0; i < kSizes[static_cast<size_t>(p)]; ++i) {
      float sum = 0;
      for (size_t rank = 0; rank < samples_by_rank.size(); ++rank) {
        float of_rank = 0;
        for (const int sample : samples_by_rank[rank]) of_rank += Gradient(sample, p, i);
        sum = rank == 0 ? of_rank : sum + of_rank;
      }
      all.push_back(sum);
    }
  }
  return all;
}

bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

class ReducerWorld : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(, ReducerWorld, ::testing::Values(1, 2, 3, 5));

TEST_P(ReducerWorld, SumsInRankOrderWhateverTheBuckets) {
  const int world = GetParam();
  std::vector<std::vector<int>> samples;
  for (int rank = 0; rank < world; ++rank) samples.push_back({rank * 2, rank * 2 + 1});
  const std::vector<float> expected = Expected(samples);
  RunRanks(world, [&](Session&, Communicator& communicator) {
    std::vector<int64_t> bytes;
    for (int64_t size : kSizes) bytes.push_back(size * 4);
    const std::vector<std::vector<std::vector<int>>> layouts = {
        {{5, 4, 3, 2, 1, 0}}, {{5}, {4}, {3}, {2}, {1}, {0}}, {{0, 3}, {5, 1}, {2, 4}}};
    for (const auto& buckets : layouts) {
      ReducerOptions options;
      options.plan.emplace().final = true;
      options.plan->buckets = buckets;
      auto reducer = Make(communicator, std::move(options));
      for (int step = 0; step < 3; ++step) {
        ASSERT_TRUE(OneStep(*reducer, {samples[static_cast<size_t>(communicator.rank())]}).ok());
        EXPECT_TRUE(SameBits(AllGradients(*reducer), expected));
        EXPECT_TRUE(reducer->all_used());
      }
      EXPECT_EQ(reducer->layout(), 0);
    }
  });
}

TEST(Reducer, RebuildsBucketsOnceFromTheReadyOrderOfRankZero) {
  const std::vector<int> order = {2, 5, 0, 4, 1, 3};
  Mutex mutex;
  std::vector<std::string> notes, plans;
  RunRanks(3, [&](Session&, Communicator& communicator) {
    ReducerOptions options;
    options.note = [&](absl::string_view text) {
      MutexLock lock(&mutex);
      notes.emplace_back(text);
    };
    auto reducer = Make(communicator, std::move(options));
    EXPECT_FALSE(reducer->plan().final);
    for (int step = 0; step < 4; ++step) {
      ASSERT_TRUE(reducer->BeginStep(1).ok());
      EXPECT_EQ(reinterpret_cast<uintptr_t>(reducer->gradient(step % 6)) % 64, 0u);
      // Every rank is ready in another order; only rank 0's counts.
      for (size_t i = 0; i < order.size(); ++i) {
        const int p = order[(i + static_cast<size_t>(communicator.rank())) % order.size()];
        AddSample(*reducer, communicator.rank(), p);
        reducer->MarkReady(p);
      }
      reducer->FinishMicroBatch();
      ASSERT_TRUE(reducer->Wait().ok());
      EXPECT_TRUE(SameBits(AllGradients(*reducer), Expected({{0}, {1}, {2}})));
      EXPECT_EQ(reducer->layout(), step == 0 ? 0 : 1);
    }
    EXPECT_TRUE(reducer->plan().final);
    std::vector<int> flat;
    for (const auto& bucket : reducer->plan().buckets) {
      flat.insert(flat.end(), bucket.begin(), bucket.end());
    }
    EXPECT_EQ(flat, order);
    MutexLock lock(&mutex);
    plans.push_back(PlanToJson(reducer->plan()));
  });
  EXPECT_EQ(notes.size(), 1u);
  EXPECT_EQ(plans[0], plans[1]);
  EXPECT_EQ(plans[0], plans[2]);
}

TEST(Reducer, APlanThatIsGivenIsUsedFromTheFirstStep) {
  RunRanks(2, [&](Session&, Communicator& communicator) {
    auto first = Make(communicator);
    ASSERT_TRUE(OneStep(*first, {{communicator.rank()}}).ok());
    ASSERT_TRUE(OneStep(*first, {{communicator.rank()}}).ok());
    ReducerOptions options;
    auto plan = PlanFromJson(PlanToJson(first->plan()), static_cast<int>(kSizes.size()));
    ASSERT_TRUE(plan.ok());
    options.plan = *plan;
    auto second = Make(communicator, std::move(options));
    ASSERT_TRUE(OneStep(*second, {{communicator.rank()}}).ok());
    ASSERT_TRUE(OneStep(*second, {{communicator.rank()}}).ok());
    EXPECT_EQ(second->layout(), 0);
    EXPECT_EQ(second->plan().buckets, first->plan().buckets);
    EXPECT_TRUE(SameBits(AllGradients(*second), AllGradients(*first)));
  });
}

TEST(Reducer, RefusesAPlanOfAnotherModel) {
  RunRanks(1, [&](Session&, Communicator& communicator) {
    ReducerOptions options;
    options.plan.emplace().final = true;
    options.plan->buckets = {{0, 1}};
    EXPECT_EQ(Reducer::Create(&communicator, kSizes, std::move(options)).status().code(),
              absl::StatusCode::kInvalidArgument);
  });
}

TEST(Reducer, AccumulatedMicroBatchesEqualOneLargeBatch) {
  RunRanks(2, [&](Session& session, Communicator& communicator) {
    const int base = communicator.rank() * 4;
    auto reducer = Make(communicator);
    for (int step = 0; step < 3; ++step) {
      const uint64_t before = session.page().collectives.load();
      ASSERT_TRUE(OneStep(*reducer, {{base, base + 1}, {base + 2}, {base + 3}}).ok());
      EXPECT_TRUE(SameBits(AllGradients(*reducer), Expected({{0, 1, 2, 3}, {4, 5, 6, 7}})));
      if (step > 0) {
        EXPECT_EQ(session.page().collectives.load() - before, reducer->plan().buckets.size())
            << "buckets travel once, not once for each micro-batch";
      }
    }
    // The last group of an epoch is shorter.
    ASSERT_TRUE(OneStep(*reducer, {{base}}).ok());
    EXPECT_TRUE(SameBits(AllGradients(*reducer), Expected({{0}, {4}})));
  });
}

TEST(Reducer, RanksWithFewerOrNoSamplesTakePart) {
  RunRanks(3, [&](Session&, Communicator& communicator) {
    auto reducer = Make(communicator);
    const std::vector<std::vector<std::vector<int>>> by_rank = {{}, {{1, 2}, {3}}, {{4}}};
    for (int step = 0; step < 2; ++step) {
      ASSERT_TRUE(OneStep(*reducer, by_rank[static_cast<size_t>(communicator.rank())]).ok());
      EXPECT_TRUE(SameBits(AllGradients(*reducer), Expected({{}, {1, 2, 3}, {4}})));
      EXPECT_TRUE(reducer->all_used());
      // Rank 0 decides about buckets, and has seen no ready order yet.
      EXPECT_FALSE(reducer->plan().final);
    }
    ASSERT_TRUE(OneStep(*reducer, {{communicator.rank()}}).ok());
    ASSERT_TRUE(OneStep(*reducer, {{communicator.rank()}}).ok());
    EXPECT_TRUE(reducer->plan().final);
    EXPECT_TRUE(SameBits(AllGradients(*reducer), Expected({{0}, {1}, {2}})));
  });
}

TEST(Reducer, TellsWhichParametersNobodyUsed) {
  RunRanks(2, [&](Session&, Communicator& communicator) {
    auto reducer = Make(communicator);
    for (int step = 0; step < 3; ++step) {
      ASSERT_TRUE(reducer->BeginStep(2).ok());
      // Parameter 1: nobody. Parameter 3: rank 1 only, and only in its first micro-batch.
      for (int micro = 0; micro < 2; ++micro) {
        for (int p = Last(); p >= 0; --p) {
          if (p == 1 || (p == 3 && (communicator.rank() == 0 || micro == 1))) continue;
          AddSample(*reducer, communicator.rank(), p);
          reducer->MarkReady(p);
        }
        reducer->FinishMicroBatch();
      }
      ASSERT_TRUE(reducer->Wait().ok());
      std::vector<int> used;
      for (int p = 0; p <= Last(); ++p) {
        if (reducer->used(p)) used.push_back(p);
      }
      EXPECT_THAT(used, ElementsAre(0, 2, 3, 4, 5));
      EXPECT_FALSE(reducer->all_used());
      EXPECT_EQ(reducer->gradient(3)[0], Gradient(1, 3, 0));
      EXPECT_EQ(reducer->gradient(4)[7], Gradient(0, 4, 7) * 2 + Gradient(1, 4, 7) * 2);
    }
  });
}

TEST(Reducer, ASecondMarkHasNoEffect) {
  RunRanks(2, [&](Session&, Communicator& communicator) {
    auto reducer = Make(communicator);
    for (int step = 0; step < 3; ++step) {
      ASSERT_TRUE(reducer->BeginStep(1).ok());
      for (int p = Last(); p >= 0; --p) {
        AddSample(*reducer, communicator.rank(), p);
        reducer->MarkReady(p);
        reducer->MarkReady(p);
        reducer->MarkReady(Last());
      }
      reducer->FinishMicroBatch();
      ASSERT_TRUE(reducer->Wait().ok());
      EXPECT_TRUE(SameBits(AllGradients(*reducer), Expected({{0}, {1}})));
    }
    EXPECT_TRUE(reducer->plan().final);
  });
}

TEST(Reducer, CarriesSmallSumsAlong) {
  RunRanks(2, [&](Session&, Communicator& communicator) {
    ReducerOptions options;
    options.sums = 2;
    auto reducer = Make(communicator, std::move(options));
    for (int step = 0; step < 3; ++step) {
      ASSERT_TRUE(reducer->BeginStep(0).ok());
      EXPECT_THAT(reducer->sums(), ElementsAre(0, 0));
      reducer->sums()[0] = 1.5f + static_cast<float>(communicator.rank());
      reducer->sums()[1] = static_cast<float>(step);
      ASSERT_TRUE(reducer->Wait().ok());
      EXPECT_THAT(reducer->sums(), ElementsAre(4.0f, 2.0f * static_cast<float>(step)));
    }
  });
}

TEST(Reducer, RecordsTheBucketInThePage) {
  RunRanks(2, [&](Session& session, Communicator& communicator) {
    ReducerOptions options;
    options.plan.emplace().final = true;
    options.plan->buckets = {{5, 4, 3}, {2}, {1, 0}};
    auto reducer = Make(communicator, std::move(options));
    ASSERT_TRUE(OneStep(*reducer, {{communicator.rank()}}).ok());
    ASSERT_EQ(session.page().collectives.load(), 3u);
    for (int bucket = 0; bucket < 3; ++bucket) {
      EXPECT_EQ(session.page().ring[bucket].bucket, bucket);
      EXPECT_GT(session.page().ring[bucket].end_ns, 0);
    }
  });
}

TEST(Reducer, AnswersAnErrorFromThenOn) {
  RunRanks(2, [&](Session&, Communicator& communicator) {
    auto reducer = Make(communicator);
    ASSERT_TRUE(OneStep(*reducer, {{communicator.rank()}}).ok());
    communicator.Abort("stop");
    ASSERT_TRUE(reducer->BeginStep(0).ok());
    EXPECT_FALSE(reducer->Wait().ok());
    EXPECT_FALSE(reducer->BeginStep(0).ok());
  });
}

}  // namespace
}  // namespace trainctl
