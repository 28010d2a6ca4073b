#include "runtime/supervisor/slot.h"

#include <array>
#include <functional>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace trainctl {
namespace {

using enum SlotEvent;

SlotDecision After(Slot& slot, std::initializer_list<SlotEvent> events) {
  SlotDecision last{};
  for (const SlotEvent event : events) last = slot.Step(event, Instant{100});
  return last;
}

TEST(Slot, RunsAndReportsAnEndByItself) {
  Slot slot;
  EXPECT_EQ(After(slot, {kForked, kExecuted}).action, SlotAction::kNone);
  EXPECT_EQ(slot.phase(), SlotPhase::kRunning);
  EXPECT_EQ(slot.Step(kReaped).action, SlotAction::kReport);
  EXPECT_EQ(slot.phase(), SlotPhase::kExited);
}

TEST(Slot, KillsAfterGraceEnds) {
  Slot slot;
  EXPECT_EQ(After(slot, {kForked, kExecuted, kStopRequested}).action, SlotAction::kTerminate);
  EXPECT_EQ(slot.grace_until(), Instant{100});
  const SlotDecision decision = slot.Step(kGraceOver);
  EXPECT_EQ(decision.action, SlotAction::kKill);
  EXPECT_STREQ(decision.reason, "the grace is over");
  EXPECT_EQ(slot.grace_until(), kNever);
}

TEST(Slot, ALaterStopCanOnlyShortenTheGrace) {
  Slot slot;
  After(slot, {kForked, kExecuted});
  slot.Step(kStopRequested, Instant{100});
  EXPECT_EQ(slot.Step(kStopRequested, Instant{200}).action, SlotAction::kNone);
  EXPECT_EQ(slot.grace_until(), Instant{100});
  slot.Step(kStopRequested, Instant{50});
  EXPECT_EQ(slot.grace_until(), Instant{50});
}

TEST(Slot, StopsAChildThatHasNotYetExecuted) {
  Slot slot;
  EXPECT_EQ(After(slot, {kForked, kStopRequested}).action, SlotAction::kTerminate);
  EXPECT_EQ(slot.Step(kExecuted).action, SlotAction::kNone);
  EXPECT_EQ(slot.phase(), SlotPhase::kTerminating);
}

TEST(Slot, AChildThatFailedToExecuteIsStillReaped) {
  Slot slot;
  After(slot, {kForked, kExecFailed});
  EXPECT_TRUE(slot.HasProcess());
  EXPECT_EQ(slot.Step(kReaped).action, SlotAction::kReport);
}

TEST(Slot, AForkThatFailedIsReportedAtOnce) {
  Slot slot;
  EXPECT_EQ(slot.Step(kForkFailed).action, SlotAction::kReport);
  EXPECT_FALSE(slot.HasProcess());
}

// Follows a slot from outside and remembers what the world must look like.
struct World {
  Slot slot;
  bool process = false;
  int reports = 0;
  std::string trace;

  void Step(SlotEvent event) {
    const SlotPhase before = slot.phase();
    const SlotDecision decision = slot.Step(event, Instant{100});
    trace += std::to_string(static_cast<int>(event)) + " ";
    ASSERT_NE(decision.reason, nullptr) << trace;
    if (decision.action == SlotAction::kRefuse) {
      ASSERT_EQ(slot.phase(), before) << "a refused event changed the phase: " << trace;
      return;
    }
    if (event == kForked) process = true;
    if (event == kReaped) process = false;
    const bool signals =
        decision.action == SlotAction::kTerminate || decision.action == SlotAction::kKill;
    ASSERT_FALSE(signals && !process) << "signalled a pid that is not ours: " << trace;
    if (decision.action == SlotAction::kReport) ++reports;
    ASSERT_LE(reports, 1) << trace;
    ASSERT_EQ(slot.HasProcess(), process) << trace;
    ASSERT_EQ(slot.grace_until() != kNever, slot.phase() == SlotPhase::kTerminating) << trace;
  }
};

TEST(Slot, KeepsItsPromisesForEveryOrderOfSixEvents) {
  constexpr int kLength = 6;
  int worlds = 0;
  const std::function<void(World, int)> extend = [&](World world, int left) {
    if (::testing::Test::HasFailure()) return;
    ++worlds;
    World end = world;
    const bool ever_used = end.process || end.reports > 0;
    // From wherever it is, a kill and the reaping that follows it end the life.
    end.Step(kKillRequested);
    if (end.process) end.Step(kReaped);
    ASSERT_FALSE(end.process);
    if (ever_used) {
      ASSERT_EQ(end.slot.phase(), SlotPhase::kExited) << end.trace;
      ASSERT_EQ(end.reports, 1) << end.trace;
    }
    if (left == 0) return;
    for (int event = 0; event < kSlotEvents; ++event) {
      World next = world;
      next.Step(static_cast<SlotEvent>(event));
      extend(next, left - 1);
    }
  };
  extend(World{}, kLength);
  EXPECT_EQ(worlds, (8 * 8 * 8 * 8 * 8 * 8 * 8 - 1) / 7);
}

}  // namespace
}  // namespace trainctl
