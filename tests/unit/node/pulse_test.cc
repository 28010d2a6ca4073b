#include "runtime/node/pulse.h"

#include "gtest/gtest.h"

namespace trainctl {
namespace {

constexpr Instant kStart{1'000'000'000};
constexpr Duration kLease = seconds(10);

TEST(Pulse, OneThatAnswersNeverHangs) {
  Pulse pulse(kLease);
  EXPECT_EQ(pulse.hangs_at(), kNever);
  EXPECT_EQ(pulse.ask_at(), kNever);
  pulse.Asked(kStart, true);
  EXPECT_LT(pulse.hangs_at(), kNever);
  pulse.Heard();
  EXPECT_EQ(pulse.hangs_at(), kNever);
  EXPECT_LT(pulse.ask_at(), kNever);
}

TEST(Pulse, FirstRequestThatIsNotAnsweredCounts) {
  Pulse pulse(kLease);
  pulse.Asked(kStart, true);
  const Instant hangs_at = pulse.hangs_at();
  pulse.Asked(kStart + kLease / 3, true);
  EXPECT_EQ(pulse.hangs_at(), hangs_at);
}

TEST(Pulse, HangsWellBeforeTheWorkersLeaseEnds) {
  Pulse pulse(kLease);
  // The last answered request was sent a third of the lease before.
  pulse.Asked(kStart + kLease / 3, true);
  EXPECT_LE(pulse.hangs_at(), kStart + kLease * 3 / 4);
}

TEST(Pulse, WithoutWorkersThereIsMoreTimeUntilTheyLive) {
  Pulse pulse(kLease);
  pulse.Asked(kStart, false);
  EXPECT_EQ(pulse.hangs_at(), kStart + kLease);
  pulse.Asked(kStart + milliseconds(1), true);
  EXPECT_LT(pulse.hangs_at(), kStart + kLease / 2);
}

TEST(Pulse, OneOnALostStreamOwesNothingAndIsNotAsked) {
  Pulse pulse(kLease);
  pulse.Asked(kStart, true);
  pulse.Lost();
  EXPECT_EQ(pulse.hangs_at(), kNever);
  EXPECT_EQ(pulse.ask_at(), kNever);
}

TEST(Pulse, EachOneThatHangsGivesTheNextTwiceTheTimeUpToABound) {
  Pulse pulse(kLease);
  pulse.Asked(kStart, false);
  pulse.Ended();
  EXPECT_EQ(pulse.hangs_at(), kNever);
  pulse.Asked(kStart, false);
  EXPECT_EQ(pulse.hangs_at(), kStart + kLease * 2);
  for (int i = 0; i < 100; ++i) pulse.Ended();
  pulse.Asked(kStart, false);
  EXPECT_LE(pulse.hangs_at(), kStart + kLease * 16);
}

}  // namespace
}  // namespace trainctl
