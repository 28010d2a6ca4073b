#include "runtime/worker/session.h"

#include <stdlib.h>

#include <string>
#include <thread>
#include <vector>

#include "absl/synchronization/notification.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/process/worker/fake_supervisor.h"

namespace trainctl {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

void ClearEnvironment() {
  for (const char* name : {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "TRAINCTL_EPOCH",
                           "TRAINCTL_JOB_ID", "TRAINCTL_SOCKET", "TRAINCTL_PAGE"}) {
    ::unsetenv(name);
  }
}

TEST(Session, ExchangesValuesByRank) {
  FakeSupervisor supervisor(3);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 3; ++rank) {
    threads.emplace_back([&, rank] {
      auto session = supervisor.MakeSession(rank);
      EXPECT_EQ(session->identity().rank, rank);
      EXPECT_EQ(session->identity().world_size, 3);
      for (int i = 0; i < 3; ++i) {
        auto values = session->Exchange("key" + std::to_string(i),
                                        std::string(1, static_cast<char>('a' + rank)), seconds(20));
        ASSERT_TRUE(values.ok()) << values.status();
        EXPECT_THAT(*values, ElementsAre("a", "b", "c"));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(Session, ACommitIsGrantedToRankZeroWithAllShards) {
  FakeSupervisor supervisor(2);
  auto zero = supervisor.MakeSession(0);
  auto one = supervisor.MakeSession(1);
  auto elsewhere = one->ShardPrepared(Step(7), {1, "shard-1", 10, "d1"}, seconds(20));
  ASSERT_TRUE(elsewhere.ok());
  EXPECT_TRUE(elsewhere->shards.empty());
  auto granted = zero->ShardPrepared(Step(7), {0, "shard-0", 10, "d0"}, seconds(20));
  ASSERT_TRUE(granted.ok()) << granted.status();
  ASSERT_EQ(granted->shards.size(), 2u);
  EXPECT_EQ(granted->shards[1].file, "shard-1");
  EXPECT_EQ(granted->step, 7);
}

TEST(Session, ACommitThatIsNotGrantedEndsAtItsDeadline) {
  FakeSupervisor supervisor(2);
  auto zero = supervisor.MakeSession(0);
  auto granted = zero->ShardPrepared(Step(7), {0, "shard-0", 10, "d0"}, milliseconds(20));
  EXPECT_EQ(granted.status().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(granted.status().message()), HasSubstr("step 7"));
}

TEST(Session, SaysOnceThatTheSupervisorIsGone) {
  FakeSupervisor supervisor(2);
  auto session = supervisor.MakeSession(0);
  absl::Notification lost;
  session->OnLost([&](absl::string_view) { lost.Notify(); });
  std::thread blocked([&] {
    auto values = session->Exchange("never", "x", seconds(60));
    EXPECT_EQ(values.status().code(), absl::StatusCode::kUnavailable) << values.status();
  });
  supervisor.Close();
  lost.WaitForNotification();
  blocked.join();
  EXPECT_EQ(session->Exchange("later", "x", seconds(60)).status().code(),
            absl::StatusCode::kUnavailable);
  bool again = false;
  session->OnLost([&](absl::string_view) { again = true; });
  EXPECT_TRUE(again);
}

TEST(Session, SharesThePageWithTheSupervisor) {
  FakeSupervisor supervisor(1);
  auto session = supervisor.MakeSession(0);
  EXPECT_FALSE(session->StopRequested());
  supervisor.page(0).stop_requested.store(1);
  EXPECT_TRUE(session->StopRequested());
  session->page().step.store(12);
  EXPECT_EQ(supervisor.page(0).step.load(), 12u);
}

TEST(Session, WorksAloneWithoutASupervisor) {
  ClearEnvironment();
  auto session = Session::FromEnvironment();
  ASSERT_TRUE(session.ok()) << session.status();
  EXPECT_EQ((*session)->identity().world_size, 1);
  auto values = (*session)->Exchange("key", "value", seconds(1));
  ASSERT_TRUE(values.ok());
  EXPECT_THAT(*values, ElementsAre("value"));
  auto granted = (*session)->ShardPrepared(Step(3), {0, "shard", 1, "d"}, seconds(1));
  ASSERT_TRUE(granted.ok());
  EXPECT_EQ(granted->shards.size(), 1u);
  (*session)->page().step.store(1);
}

TEST(Session, RefusesAnEnvironmentThatMakesNoSense) {
  ClearEnvironment();
  ::setenv("WORLD_SIZE", "2", 1);
  EXPECT_THAT(std::string(Session::FromEnvironment().status().message()),
              HasSubstr("trainctl launch"));
  ::setenv("WORLD_SIZE", "two", 1);
  EXPECT_THAT(std::string(Session::FromEnvironment().status().message()),
              HasSubstr("WORLD_SIZE=two"));
  ::setenv("WORLD_SIZE", "2", 1);
  ::setenv("RANK", "2", 1);
  EXPECT_THAT(std::string(Session::FromEnvironment().status().message()), HasSubstr("contradict"));
  ::setenv("TRAINCTL_SOCKET", "/nowhere/socket", 1);
  EXPECT_THAT(std::string(Session::FromEnvironment().status().message()),
              HasSubstr("LOCAL_RANK is not set"));
  ClearEnvironment();
}

}  // namespace
}  // namespace trainctl
