#include "runtime/node/node_state.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace trainctl {
namespace {

using ::testing::IsEmpty;
using ::testing::SizeIs;

frame::EpochStarted Started(int64_t epoch) {
  frame::EpochStarted started;
  started.epoch = epoch;
  started.reserved_port = 4000;
  for (const int rank : {0, 1})
    started.slots.push_back({rank, rank, 100 + rank, true, {}, 0, {}, {}});
  return started;
}

frame::WorkerExited Exited(int64_t epoch, int rank) {
  frame::WorkerExited exited;
  exited.epoch = epoch;
  exited.rank = rank;
  exited.exit.kind = frame::Exit::Kind::kSignaled;
  exited.exit.code = 9;
  exited.output_tail = "last words";
  return exited;
}

TEST(NodeState, KeepsWhatTheShimToldForANewCoordinator) {
  NodeState state;
  state.Take(frame::ShimState{});
  EXPECT_TRUE(state.state().gone);
  state.Apply(Started(0));
  EXPECT_FALSE(state.state().gone);
  EXPECT_EQ(state.state().reserved_port, 4000);
  state.Apply(Exited(0, 1));
  EXPECT_TRUE(state.state().slots[0].running);
  EXPECT_FALSE(state.state().slots[1].running);
  EXPECT_EQ(state.state().slots[1].output_tail, "last words");
  state.Apply(frame::EpochGone{0});
  EXPECT_TRUE(state.state().gone);
}

TEST(NodeState, ANewEpochForgetsTheOldOne) {
  NodeState state;
  state.Apply(Started(0));
  state.Apply(Exited(0, 1));
  state.Apply(frame::Exchange{0, 0, "id", "a", 1});
  state.Apply(frame::ShardPrepared{0, 10, {0, "f", 1, "d"}});
  state.Apply(Started(1));
  EXPECT_TRUE(state.state().slots[1].running);
  EXPECT_THAT(state.state().exchanges, IsEmpty());
  EXPECT_THAT(state.Retold(), IsEmpty());
}

TEST(NodeState, ALateWordAboutAnOldEpochChangesNothing) {
  NodeState state;
  state.Apply(Started(1));
  state.Apply(frame::EpochGone{0});
  state.Apply(frame::Exchange{0, 0, "id", "a", 1});
  state.Apply(Exited(0, 1));
  EXPECT_EQ(state.state().epoch, 1);
  EXPECT_FALSE(state.state().gone);
  EXPECT_THAT(state.state().slots, SizeIs(2));
  EXPECT_TRUE(state.state().slots[1].running);
  EXPECT_THAT(state.state().exchanges, IsEmpty());
}

TEST(NodeState, WorkersOfADeadShimAreLostAndItsNewShimKeepsThemSo) {
  NodeState state;
  state.Apply(Started(2));
  state.Apply(Exited(2, 1));
  state.ShimDied(77);
  const frame::SlotState& lost = state.state().slots[0];
  EXPECT_EQ(lost.exit.kind, frame::Exit::Kind::kLost);
  EXPECT_EQ(lost.exit.message, "the shim of this node died");
  EXPECT_EQ(lost.exit_ns, 77);
  EXPECT_EQ(state.state().slots[1].exit.kind, frame::Exit::Kind::kSignaled);
  frame::ShimState fresh;
  fresh.reserved_port = 5000;
  state.Take(fresh);
  EXPECT_EQ(state.state().epoch, 2);
  EXPECT_TRUE(state.state().gone);
  EXPECT_EQ(state.state().reserved_port, 5000);
  EXPECT_THAT(state.state().slots, SizeIs(2));
}

frame::StartEpoch Order(int64_t epoch) {
  frame::StartEpoch start;
  start.epoch = epoch;
  return start;
}

TEST(NodeState, WorkersMayLiveOnceTheOrderToStartThemWasPassedOn) {
  NodeState state;
  state.Apply(Started(1));
  state.Apply(frame::EpochGone{1});
  state.Ordered(Order(2));
  EXPECT_EQ(state.Told().epoch, 2);
  EXPECT_FALSE(state.Told().gone);
  EXPECT_THAT(state.Told().slots, IsEmpty());
  state.Apply(Started(2));
  EXPECT_THAT(state.Told().slots, SizeIs(2));
  state.Apply(frame::EpochGone{2});
  EXPECT_TRUE(state.Told().gone);
}

TEST(NodeState, AnOrderThatIsRefusedOrDiesWithItsShimStartedNothing) {
  NodeState state;
  state.Apply(Started(1));
  frame::ShimState refused = state.state();
  state.Ordered(Order(2));
  state.Take(refused);
  EXPECT_EQ(state.Told().epoch, 1);
  EXPECT_FALSE(state.Told().gone);
  state.Ordered(Order(2));
  state.ShimDied(7);
  EXPECT_EQ(state.Told().epoch, 1);
  EXPECT_TRUE(state.Told().gone);
}

TEST(NodeState, TellsTheNewestShardAndMetricAgain) {
  NodeState state;
  state.Apply(Started(0));
  state.Apply(frame::ShardPrepared{0, 10, {0, "old", 1, "d"}});
  state.Apply(frame::ShardPrepared{0, 20, {0, "new", 1, "d"}});
  state.Apply(frame::Metric{0, 0, "top1", 0.1});
  state.Apply(frame::Metric{0, 0, "top1", 0.2});
  const auto retold = state.Retold();
  ASSERT_THAT(retold, SizeIs(2));
  EXPECT_EQ(std::get<frame::ShardPrepared>(retold[0]).step, 20);
  EXPECT_EQ(std::get<frame::Metric>(retold[1]).value, 0.2);
}

TEST(NodeState, TellsOfDamagedCheckpointsAgainBeforeWhatWasWrittenSince) {
  NodeState state;
  state.Apply(Started(0));
  state.Apply(frame::CheckpointRejected{0, 10, "digest differs"});
  state.Apply(frame::CheckpointRejected{0, 10, "digest differs"});
  state.Apply(frame::CheckpointPublished{0, 10});
  const auto retold = state.Retold();
  ASSERT_THAT(retold, SizeIs(2));
  EXPECT_EQ(std::get<frame::CheckpointRejected>(retold[0]).step, 10);
  EXPECT_EQ(std::get<frame::CheckpointPublished>(retold[1]).step, 10);
  state.Apply(Started(1));
  EXPECT_THAT(state.Retold(), IsEmpty());
}

TEST(NodeState, AWorkerThatInventsMetricsCannotFillTheMemory) {
  NodeState state;
  state.Apply(Started(0));
  for (int i = 0; i < 10'000; ++i) state.Apply(frame::Metric{0, 0, std::to_string(i), 1});
  EXPECT_THAT(state.Retold(), SizeIs(256));
}

}  // namespace
}  // namespace trainctl
