// The coordinator in a world of faults: what must hold while it runs, and what it remembers when it
// was killed after any record.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "launcher/coordinator/coordinator.h"
#include "tests/unit/launcher/coordinator/faulty_world.h"

namespace trainctl {
namespace {

// What an earlier life left behind, as far as one can see it in the journal itself.
struct Memory {
  Epoch epoch{-1};
  std::map<std::string, bool> drained;
  std::set<Step> committed;
  bool finished = false;

  void Take(const JournalRecord& record) {
    if (const auto* r = std::get_if<EpochFormed>(&record)) {
      EXPECT_EQ(r->epoch, epoch.Next()) << "no number is used twice, and none is left out";
      EXPECT_FALSE(finished);
      epoch = r->epoch;
    }
    if (const auto* r = std::get_if<NodeDrained>(&record)) drained[r->node] = r->drained;
    if (const auto* r = std::get_if<CheckpointCommitted>(&record)) committed.insert(r->step);
    if (const auto* r = std::get_if<CheckpointDropped>(&record)) committed.erase(r->step);
    if (std::holds_alternative<Finished>(record)) finished = true;
  }
};

// A coordinator that was killed after any record goes on from what the journal says.
void CheckEveryPrefix(const World& world) {
  Memory memory;
  std::vector<JournalRecord> prefix;
  for (const JournalRecord& record : world.journal()) {
    memory.Take(record);
    prefix.push_back(record);
    Coordinator coordinator = Coordinator::Replay(world.spec(), prefix);
    Batch batch;
    const Instant now{1};
    coordinator.Start(now, 1, Term(1'000'000), &batch);
    EXPECT_EQ(coordinator.epoch(), memory.epoch);
    EXPECT_EQ(coordinator.phase() == JobPhase::kFinished, memory.finished);
    EXPECT_FALSE(coordinator.Explain(now).empty());
    for (const Action& action : batch.perform) {
      EXPECT_FALSE(std::holds_alternative<StartWorkers>(action)) << "nobody is here yet";
      EXPECT_EQ(std::holds_alternative<FinishJob>(action), memory.finished);
    }
    if (memory.finished) continue;
    const JobView view = coordinator.View(now);
    for (const NodeView& node : view.nodes) {
      const auto drained = memory.drained.find(node.node);
      const bool away =
          node.standing == NodeStanding::kLate || node.standing == NodeStanding::kLost;
      if (away || drained == memory.drained.end()) continue;
      EXPECT_EQ(node.reason == "drained", drained->second) << node.node;
    }
    if (!memory.committed.empty()) {
      EXPECT_GE(view.recovery_point, *memory.committed.rbegin());
    }
  }
}

class CoordinatorFaults : public testing::TestWithParam<uint64_t> {};

TEST_P(CoordinatorFaults, NeverRunsTwoEpochsAtOnceAndEndsTheJob) {
  const int most = 1 + static_cast<int>(GetParam() % 4);
  const int fewest = std::max(1, most - static_cast<int>(GetParam() / 4 % 3));
  World world(GetParam(), most + 2, fewest, most);
  world.Run(seconds(300), true);
  world.FinishWorkers();
  world.Heal();
  world.Run(seconds(300), false);
  EXPECT_EQ(world.phase(), JobPhase::kFinished) << world.Explain();
  EXPECT_FALSE(world.AnyRunning());
  EXPECT_GT(world.epochs(), 2) << "too few faults to prove anything";
  CheckEveryPrefix(world);
}

TEST(CoordinatorReplay, AFinishedJobIsNeverRunAgain) {
  JobSpec spec;
  spec.job_id = "job";
  const Finished finished{{Outcome::Kind::kSucceeded, 0, "done", std::nullopt}, 5};
  EpochFormed formed;
  formed.epoch = Epoch(0);
  formed.nodes = {{"n", "", "", 0, 1}};
  Coordinator coordinator =
      Coordinator::Replay(spec, {TermStarted{Term(1)}, formed, EpochStarted{Epoch(0)}, finished});
  Batch batch;
  coordinator.Start(Instant{1}, 1, Term(2), &batch);
  ASSERT_EQ(batch.perform.size(), 1u);
  EXPECT_TRUE(std::holds_alternative<FinishJob>(batch.perform[0]));
  EXPECT_TRUE(batch.persist.empty());
  NodeJoined joined;
  joined.node = "n";
  joined.slots = 1;
  joined.addresses = {{"", "a"}};
  const std::vector<Event> events = {joined,
                                     StopAsked{"x", false, true},
                                     DrainAsked{"n", true, "x"},
                                     WorkersStarted{"n", Epoch(0), 1, {}},
                                     DeadlineReached{},
                                     NodeEpochGone{"n", Epoch(0)}};
  for (const Event& event : events) {
    Batch more;
    coordinator.Step(Instant{2}, 1, event, &more);
    EXPECT_TRUE(more.persist.empty());
    for (const Action& action : more.perform) {
      EXPECT_TRUE(std::holds_alternative<ReleaseNode>(action));
    }
  }
  EXPECT_EQ(coordinator.next_deadline(), kNever);
}

INSTANTIATE_TEST_SUITE_P(Seeds, CoordinatorFaults, testing::Range<uint64_t>(1, 41));

}  // namespace
}  // namespace trainctl
