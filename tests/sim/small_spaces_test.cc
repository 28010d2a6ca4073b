// Where there is little enough of it, all of it is tried.
#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <vector>

#include "runtime/supervisor/slot.h"
#include "tests/sim/world.h"

namespace trainctl::sim {
namespace {

// What is true of a slot whatever it was told before.
class WatchedSlot {
 public:
  void Step(SlotEvent event) {
    const SlotPhase before = slot_.phase();
    const bool had_process = slot_.HasProcess();
    const Instant grace_before = slot_.grace_until();
    const SlotDecision decision = slot_.Step(event, Instant{next_grace_});
    next_grace_ += 7;
    ASSERT_NE(decision.reason, nullptr);
    switch (decision.action) {
      case SlotAction::kNone:
        break;
      case SlotAction::kTerminate:
      case SlotAction::kKill:
        ASSERT_TRUE(had_process && slot_.HasProcess()) << "signals a pid that is not ours";
        break;
      case SlotAction::kReport:
        ASSERT_EQ(++reports_, 1);
        ASSERT_EQ(slot_.phase(), SlotPhase::kExited);
        break;
      case SlotAction::kRefuse:
        ASSERT_EQ(slot_.phase(), before) << "what is refused changes nothing";
        break;
    }
    ASSERT_EQ(reports_ == 1, slot_.phase() == SlotPhase::kExited);
    if (slot_.phase() == SlotPhase::kTerminating) {
      ASSERT_LE(slot_.grace_until(), grace_before) << "the grace grew";
    } else {
      ASSERT_EQ(slot_.grace_until(), kNever);
    }
    if (before == SlotPhase::kExited) {
      ASSERT_EQ(slot_.phase(), SlotPhase::kExited);
    }
  }

  // However it got here, it can be brought to its end.
  void End() {
    if (!slot_.HasProcess()) return;
    Step(SlotEvent::kKillRequested);
    ASSERT_EQ(slot_.phase(), SlotPhase::kKilling);
    Step(SlotEvent::kReaped);
    ASSERT_EQ(slot_.phase(), SlotPhase::kExited);
  }

 private:
  Slot slot_;
  int reports_ = 0;
  int64_t next_grace_ = 100;
};

void TryAll(const WatchedSlot& slot, int length) {
  WatchedSlot ended = slot;
  ended.End();
  if (length == 0 || testing::Test::HasFatalFailure()) return;
  for (int event = 0; event < kSlotEvents; ++event) {
    WatchedSlot next = slot;
    next.Step(static_cast<SlotEvent>(event));
    TryAll(next, length - 1);
  }
}

TEST(SmallSpaces, AllOrdersOfSixEventsOfASlot) { TryAll(WatchedSlot(), 6); }

// Every subset of four nodes fails, in every phase of the job and in every way, in a job that needs
// all of them and in one that needs two; afterwards it runs again.
class FailingNodes : public testing::TestWithParam<Strike::Kind> {};

TEST_P(FailingNodes, EverySubsetOfFourInEveryPhase) {
  constexpr std::array kPhases = {JobPhase::kForming, JobPhase::kStarting, JobPhase::kRunning,
                                  JobPhase::kDraining};
  for (const JobPhase phase : kPhases) {
    for (unsigned nodes = 1; nodes < 16; ++nodes) {
      for (const int min_nodes : {2, 4}) {
        Options options;
        options.seed = nodes;
        options.nodes = 4;
        options.slots = 2;
        options.faults = false;
        options.duration = seconds(60);
        options.min_nodes = min_nodes;
        options.max_restarts = 100;
        options.strike = Strike{GetParam(), phase, nodes};
        const Result result = World(options).Run();
        ASSERT_EQ(result.verdict, Verdict::kGood)
            << "nodes " << nodes << " in phase " << JobPhaseName(phase) << " of a job of "
            << min_nodes << ":4: " << result.checker << ": " << result.text;
        ASSERT_EQ(result.faults, 1u) << JobPhaseName(phase);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(AllKinds, FailingNodes,
                         testing::Values(Strike::Kind::kPower, Strike::Kind::kDaemon,
                                         Strike::Kind::kShim, Strike::Kind::kLink,
                                         Strike::Kind::kMachine, Strike::Kind::kWorker));

}  // namespace
}  // namespace trainctl::sim
