#include "runtime/supervisor/hang_watch.h"

#include "gmock/gmock.h"

namespace trainctl {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr Instant kStart{1'000'000'000};

HangWatch::Seen At(uint64_t step, WorkerPhase phase = WorkerPhase::kForward) {
  return {phase, step, 0, 0};
}

// Looks every `tick` while nothing changes; what was said, and when.
struct Said {
  std::string text;
  Instant at;
};
Said LookUntil(HangWatch& watch, const HangWatch::Seen& seen, Instant from, Duration most,
               Duration tick = milliseconds(500)) {
  for (Instant now = from; now <= from + most; now = now + tick) {
    const std::string text = watch.Look(seen, now);
    if (!text.empty()) return {text, now};
  }
  return {};
}

TEST(HangWatch, AStepBeyondTheGivenTimeIsSaidOnce) {
  HangWatch watch(seconds(3), kStart);
  EXPECT_THAT(watch.Look(At(1), kStart + seconds(1)), IsEmpty());
  const Said said =
      LookUntil(watch, At(1, WorkerPhase::kCollective), kStart + seconds(1), seconds(9));
  EXPECT_THAT(said.text, HasSubstr("3.0 s, in phase collective"));
  EXPECT_EQ(said.at, kStart + seconds(4));
  EXPECT_THAT(LookUntil(watch, At(1), said.at, seconds(60)).text, IsEmpty());
  EXPECT_THAT(watch.Look(At(2), said.at + seconds(61)), IsEmpty());
  EXPECT_THAT(LookUntil(watch, At(2), said.at + seconds(61), seconds(9)).text, HasSubstr("step"));
}

TEST(HangWatch, WithoutATimeTheMedianStepCounts) {
  HangWatch watch(Duration(0), kStart);
  Instant now = kStart;
  for (uint64_t step = 1; step <= 40; ++step) {
    now = now + seconds(5);
    EXPECT_THAT(watch.Look(At(step), now), IsEmpty());
  }
  const Said said = LookUntil(watch, At(40), now, seconds(600));
  EXPECT_EQ(said.at, now + seconds(100));
  EXPECT_THAT(said.text, HasSubstr("its steps take 5.0 s in the median"));
}

TEST(HangWatch, ShortStepsAreGivenAMinuteAndFirstStepsHalfAnHour) {
  HangWatch quick(Duration(0), kStart);
  Instant now = kStart;
  for (uint64_t step = 1; step <= 40; ++step) quick.Look(At(step), now = now + milliseconds(10));
  EXPECT_EQ(LookUntil(quick, At(40), now, seconds(600)).at, now + seconds(60));
  HangWatch first(Duration(0), kStart);
  EXPECT_EQ(LookUntil(first, At(0), kStart, seconds(4000)).at, kStart + seconds(1800));
}

TEST(HangWatch, StartUpCheckpointAndEvaluationAreNoHang) {
  for (const WorkerPhase phase :
       {WorkerPhase::kInit, WorkerPhase::kCheckpoint, WorkerPhase::kEvaluate, WorkerPhase::kIdle}) {
    HangWatch watch(seconds(3), kStart);
    EXPECT_THAT(LookUntil(watch, At(7, phase), kStart, seconds(600)).text, IsEmpty());
    // Their time does not count afterwards.
    const Instant after = kStart + seconds(600);
    EXPECT_EQ(LookUntil(watch, At(7), after, seconds(60)).at, after + seconds(3));
  }
}

TEST(HangWatch, AStoppedWorkerIsSeenInAnyPhase) {
  HangWatch watch(seconds(1), kStart);
  watch.Stopped(kStart);
  EXPECT_EQ(LookUntil(watch, At(0, WorkerPhase::kInit), kStart, seconds(9)).at,
            kStart + seconds(1));
  HangWatch continued(seconds(1), kStart);
  continued.Stopped(kStart);
  continued.Continued();
  EXPECT_THAT(LookUntil(continued, At(0, WorkerPhase::kInit), kStart, seconds(9)).text, IsEmpty());
}

TEST(HangWatch, AScriptWithoutAPageIsJudgedOnlyIfAsked) {
  const HangWatch::Seen silent{WorkerPhase::kNone, 0, 100, 5};
  HangWatch unasked(Duration(0), kStart);
  EXPECT_FALSE(unasked.JudgesSilence());
  EXPECT_THAT(LookUntil(unasked, silent, kStart, seconds(7200), seconds(10)).text, IsEmpty());
  HangWatch asked(seconds(5), kStart);
  asked.Look(silent, kStart);
  EXPECT_THAT(LookUntil(asked, silent, kStart, seconds(60)).text, HasSubstr("printed nothing"));
}

TEST(HangWatch, AScriptThatPrintsOrComputesDoesNotHang) {
  HangWatch watch(seconds(5), kStart);
  for (int i = 0; i < 100; ++i) {
    const Instant now = kStart + seconds(i);
    EXPECT_THAT(watch.Look({WorkerPhase::kNone, 0, static_cast<uint64_t>(i), 0}, now), IsEmpty());
  }
  for (int i = 100; i < 200; ++i) {
    const Instant now = kStart + seconds(i);
    EXPECT_THAT(watch.Look({WorkerPhase::kNone, 0, 99, 50'000'000L * i}, now), IsEmpty());
  }
}

}  // namespace
}  // namespace trainctl
