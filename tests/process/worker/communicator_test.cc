#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstring>
#include <functional>
#include <numeric>
#include <random>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/synchronization/notification.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/base/clock.h"
#include "runtime/base/status.h"
#include "runtime/worker/gloo_mesh.h"
#include "tests/process/worker/fake_supervisor.h"

namespace trainctl {
namespace {

using ::testing::HasSubstr;

// What `rank` contributes: values of very different magnitude, so that every other order of
// summation gives other bits.
std::vector<float> Contribution(int rank, size_t count) {
  std::mt19937 random(static_cast<uint32_t>(rank * 7919 + 1));
  std::uniform_real_distribution<float> exponent(-12, 12);
  std::vector<float> values(count);
  for (float& value : values) {
    value = std::exp2(exponent(random)) * (random() % 2 == 0 ? 1.0f : -1.0f);
  }
  return values;
}

std::vector<float> RankOrderSum(int world_size, size_t count) {
  std::vector<float> sum = Contribution(0, count);
  for (int rank = 1; rank < world_size; ++rank) {
    const std::vector<float> term = Contribution(rank, count);
    for (size_t i = 0; i < count; ++i) sum[i] += term[i];
  }
  return sum;
}

class WorldSize : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(, WorldSize, ::testing::Range(1, 6));

class WorldSizeAndWay : public ::testing::TestWithParam<std::tuple<int, bool>> {};
INSTANTIATE_TEST_SUITE_P(, WorldSizeAndWay,
                         ::testing::Combine(::testing::Range(1, 6), ::testing::Bool()));

TEST_P(WorldSizeAndWay, AllReduceSumsInRankOrderToTheLastBit) {
  const int world = std::get<0>(GetParam());
  CommunicatorOptions options;
  options.shared_memory = std::get<1>(GetParam());
  const std::vector<size_t> counts = {1, 3, 1000, 4096, 4097, 32768, 32769, 100003, 600001};
  std::vector<std::vector<float>> expected;
  for (size_t count : counts) expected.push_back(RankOrderSum(world, count));
  RunRanks(
      world,
      [&](Session&, Communicator& communicator) {
        for (size_t i = 0; i < counts.size(); ++i) {
          std::vector<float> values = Contribution(communicator.rank(), counts[i]);
          ASSERT_TRUE(communicator.AllReduceSum(values.data(), counts[i]).ok());
          ASSERT_EQ(0, std::memcmp(values.data(), expected[i].data(), counts[i] * sizeof(float)))
              << "rank " << communicator.rank() << " count " << counts[i];
        }
      },
      options);
}

TEST_P(WorldSize, ReduceScatterGivesEachRankItsChunkInRankOrder) {
  const int world = GetParam();
  for (size_t count : {size_t{1}, size_t{5000}, size_t{70001}}) {
    const std::vector<float> expected = RankOrderSum(world, count * static_cast<size_t>(world));
    RunRanks(world, [&](Session&, Communicator& communicator) {
      const std::vector<float> values =
          Contribution(communicator.rank(), count * static_cast<size_t>(world));
      std::vector<float> out(count);
      ASSERT_TRUE(communicator.ReduceScatterSum(values.data(), out.data(), count).ok());
      ASSERT_EQ(0, std::memcmp(out.data(),
                               expected.data() + count * static_cast<size_t>(communicator.rank()),
                               count * sizeof(float)));
    });
  }
}

TEST_P(WorldSize, GathersBroadcastsAndSumsDoubles) {
  const int world = GetParam();
  RunRanks(world, [&](Session&, Communicator& communicator) {
    for (size_t bytes : {size_t{3}, size_t{300'000}}) {
      const std::string mine(bytes, static_cast<char>('a' + communicator.rank()));
      std::string all(bytes * static_cast<size_t>(world), '?');
      ASSERT_TRUE(communicator.AllGather(mine.data(), all.data(), bytes).ok());
      for (int rank = 0; rank < world; ++rank) {
        EXPECT_EQ(all.substr(bytes * static_cast<size_t>(rank), bytes),
                  std::string(bytes, static_cast<char>('a' + rank)));
      }
      for (int root = 0; root < world; ++root) {
        std::string text(bytes, static_cast<char>('A' + communicator.rank()));
        ASSERT_TRUE(communicator.Broadcast(text.data(), bytes, root).ok());
        EXPECT_EQ(text, std::string(bytes, static_cast<char>('A' + root)));
      }
    }
    double sum = communicator.rank() + 0.5;
    ASSERT_TRUE(communicator.AllReduceSum(&sum, 1).ok());
    EXPECT_EQ(sum, world * (world - 1) / 2 + 0.5 * world);
    EXPECT_TRUE(communicator.Barrier().ok());
  });
}

class EitherWay : public ::testing::TestWithParam<bool> {
 protected:
  EitherWay() { options_.shared_memory = GetParam(); }
  CommunicatorOptions options_;
};
INSTANTIATE_TEST_SUITE_P(, EitherWay, ::testing::Bool());

TEST(Communicator, RecordsEveryCollectiveInThePage) {
  RunRanks(2, [](Session& session, Communicator& communicator) {
    std::vector<float> values(10, 1.0f);
    ASSERT_TRUE(communicator.AllReduceSum(values.data(), 10, /*bucket=*/3).ok());
    ASSERT_TRUE(communicator.Barrier().ok());
    WorkerPage& page = session.page();
    ASSERT_EQ(page.collectives.load(), 2u);
    const CollectiveRecord& first = page.ring[0];
    EXPECT_EQ(first.op, static_cast<uint32_t>(CollectiveOp::kAllReduce));
    EXPECT_EQ(first.sequence, 1u);
    EXPECT_EQ(first.bytes, 40u);
    EXPECT_EQ(first.dtype, 1u);
    EXPECT_EQ(first.bucket, 3);
    EXPECT_GT(first.start_ns, 0);
    EXPECT_GE(first.end_ns, first.start_ns);
    EXPECT_EQ(first.lock.load() % 2, 0u);
    EXPECT_EQ(page.ring[1].op, static_cast<uint32_t>(CollectiveOp::kBarrier));
    EXPECT_EQ(page.ring[1].bucket, -1);
  });
}

TEST_P(EitherWay, AbortWakesACallThatWaitsForAPeerThatNeverComes) {
  absl::Notification aborted;
  RunRanks(
      2,
      [&](Session& session, Communicator& communicator) {
        if (communicator.rank() == 1) {
          aborted.WaitForNotification();
          return;
        }
        Instant called;
        std::thread other([&] {
          while (session.page().collectives.load() == 0) std::this_thread::yield();
          called = Now();
          communicator.Abort("the epoch is condemned");
        });
        std::vector<float> values(1 << 20, 1.0f);
        const absl::Status status = communicator.AllReduceSum(values.data(), values.size());
        const Instant woken = Now();
        other.join();
        EXPECT_EQ(status.code(), absl::StatusCode::kAborted);
        EXPECT_THAT(std::string(status.message()), HasSubstr("the epoch is condemned"));
        EXPECT_LT(ToSeconds(woken - called), 1.0);
        EXPECT_EQ(communicator.Barrier().code(), absl::StatusCode::kAborted);
        EXPECT_EQ(session.page().ring[0].end_ns, 0) << "shows what it was blocked in";
        aborted.Notify();
      },
      options_);
}

TEST_P(EitherWay, AWaitThatTakesTooLongNamesTheRankWaitedFor) {
  absl::Notification over;
  options_.collective_timeout = milliseconds(50);
  RunRanks(
      2,
      [&](Session&, Communicator& communicator) {
        if (communicator.rank() == 1) return over.WaitForNotification();
        float value = 0;
        const absl::Status status = communicator.AllReduceSum(&value, 1);
        EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
        EXPECT_THAT(std::string(status.message()), HasSubstr("rank 1"));
        EXPECT_THAT(std::string(status.message()), HasSubstr("all-reduce number 1"));
        EXPECT_THAT(std::string(status.message()), HasSubstr("0.05 s"));
        EXPECT_EQ(status.GetPayload(kAbsentRank), absl::Cord("1"));
        over.Notify();
      },
      options_);
}

TEST_P(EitherWay, ARankThatLeavesInTheMiddleEndsTheOthersWait) {
  RunRanks(
      2,
      [](Session&, Communicator& communicator) {
        EXPECT_TRUE(communicator.Barrier().ok());
        if (communicator.rank() == 1) return;
        float value = 1;
        const absl::Status status = communicator.AllReduceSum(&value, 1);
        EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
        EXPECT_THAT(std::string(status.message()), HasSubstr("rank 1"));
      },
      options_);
}

// Ranks that call collectives of different sizes, or different ones: neither a crash nor a wrong
// sum.
TEST_P(EitherWay, UnevenCallsAreAnErrorThatNamesRanksAndSizes) {
  using Call = std::function<absl::Status(Communicator&, std::vector<float> & memory)>;
  const auto all_reduce = [](size_t count) -> Call {
    return [count](Communicator& c, auto& memory) { return c.AllReduceSum(memory.data(), count); };
  };
  const auto gather = [](size_t bytes) -> Call {
    return [bytes](Communicator& c, auto& memory) {
      return c.AllGather(memory.data() + memory.size() / 2, memory.data(), bytes);
    };
  };
  const auto broadcast = [](size_t bytes) -> Call {
    return [bytes](Communicator& c, auto& memory) {
      absl::Status status = c.Broadcast(memory.data(), bytes, 0);
      status.Update(c.Barrier());  // the root of a broadcast waits for nobody
      return status;
    };
  };
  constexpr size_t kLarge = 2 << 20;
  const std::vector<std::pair<Call, Call>> cases = {
      {all_reduce(10), all_reduce(11)},     {all_reduce(0), all_reduce(1)},
      {all_reduce(10), all_reduce(kLarge)}, {all_reduce(kLarge - 7), all_reduce(kLarge)},
      {gather(40), all_reduce(10)},         {gather(4), gather(8)},
      {gather(kLarge), gather(kLarge + 1)}, {gather(4), gather(kLarge)},
      {broadcast(4), broadcast(8)},         {broadcast(kLarge + 1), broadcast(kLarge)},
      {broadcast(4), broadcast(kLarge)},
  };
  for (size_t i = 0; i < cases.size(); ++i) {
    std::array<absl::Status, 2> ends;
    RunRanks(
        2,
        [&](Session&, Communicator& communicator) {
          std::vector<float> memory(2 * kLarge);
          const int rank = communicator.rank();
          ends[rank] = (rank == 0 ? cases[i].first : cases[i].second)(communicator, memory);
        },
        options_);
    int named = 0;
    for (const absl::Status& end : ends) {
      EXPECT_FALSE(end.ok()) << "case " << i;
      named += absl::IsInvalidArgument(end) && absl::StrContains(end.message(), "rank 0 is at") +
                                                   absl::StrContains(end.message(), "rank 1 is at");
    }
    EXPECT_GE(named, 1) << "case " << i << ": " << ends[0] << "; " << ends[1];
  }
}

TEST(Communicator, WhatWasSentLastArrivesAlthoughTheSenderEnds) {
  for (int i = 0; i < 20; ++i) {
    RunRanks(2, [](Session&, Communicator& communicator) {
      std::vector<float> values(1 << 20, 1.0f);
      EXPECT_TRUE(communicator.Broadcast(values.data(), values.size() * 4, 0).ok());
    });
  }
}

TEST(Communicator, ALostSupervisorEndsABlockedCollective) {
  FakeSupervisor supervisor(2);
  absl::Notification ended;
  std::atomic<int> connected{0};
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < 2; ++rank) {
    ranks.emplace_back([&, rank] {
      std::unique_ptr<Session> session = supervisor.MakeSession(rank);
      auto communicator = ConnectGloo(*session);
      ASSERT_TRUE(communicator.ok());
      connected.fetch_add(1);
      if (rank == 1) return ended.WaitForNotification();
      const absl::Status status = (*communicator)->Barrier();
      EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
      EXPECT_THAT(std::string(status.message()), HasSubstr("supervisor"));
      ended.Notify();
    });
  }
  while (connected.load() < 2 || supervisor.page(0).collectives.load() == 0)
    std::this_thread::yield();
  supervisor.Close();
  for (std::thread& rank : ranks) rank.join();
}

// A rank dies by SIGKILL at a random moment of a stream of large all-reduces; the others must end
// with an error that names it.
TEST_P(EitherWay, AKilledPeerIsNamedAndNobodyHangs) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "skipped, because ThreadSanitizer ends a child that starts threads";
#endif
  constexpr int kWorld = 3;
  for (int attempt = 0; attempt < 5; ++attempt) {
    FakeSupervisor supervisor(kWorld);
    std::vector<pid_t> children;
    for (int rank = 0; rank < kWorld; ++rank) {
      const pid_t child = ::fork();
      if (child == 0) {
        std::unique_ptr<Session> session = supervisor.MakeSession(rank);
        auto communicator = ConnectGloo(*session, options_);
        if (!communicator.ok()) ::_exit(2);
        std::vector<float> values(1 << 20, 1.0f);
        for (;;) {
          const absl::Status status = (*communicator)->AllReduceSum(values.data(), values.size());
          if (status.ok()) continue;
          const bool named = absl::StrContains(status.message(), "rank 2");
          if (!named) absl::FPrintF(stderr, "%s\n", std::string(status.ToString()));
          ::_exit(named ? 0 : 3);
        }
      }
      children.push_back(child);
    }
    const auto give_up = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (supervisor.page(2).collectives.load() < static_cast<uint64_t>(2 + attempt)) {
      ASSERT_LT(std::chrono::steady_clock::now(), give_up) << "rank 2 does not come that far";
      std::this_thread::yield();
    }
    ::kill(children[2], SIGKILL);
    // The first of the survivors to see it may end before the other does, which may then name it.
    int named = 0;
    for (int rank = 0; rank < kWorld; ++rank) {
      int status = 0;
      ASSERT_EQ(::waitpid(children[static_cast<size_t>(rank)], &status, 0),
                children[static_cast<size_t>(rank)]);
      if (rank != 2) named += WIFEXITED(status) && WEXITSTATUS(status) == 0;
    }
    EXPECT_GE(named, 1);
  }
}

}  // namespace
}  // namespace trainctl
