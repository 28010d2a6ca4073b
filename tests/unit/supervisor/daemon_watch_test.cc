#include "runtime/supervisor/daemon_watch.h"

#include <gtest/gtest.h>

namespace trainctl {
namespace {

constexpr Instant kConnected = Instant{} + seconds(1000);

TEST(DaemonWatch, WhoAnswersIsNeverAsked) {
  DaemonWatch watch(seconds(10));
  watch.Connected(kConnected);
  Instant now = kConnected;
  for (int i = 0; i < 20; ++i) {
    watch.RequestedLease(now);
    watch.Heard(now + milliseconds(1));
    now = now + seconds(10) / 3;
    EXPECT_GT(watch.ask_at(), now);
    EXPECT_EQ(watch.hangs_at(), kNever);
  }
}

TEST(DaemonWatch, WhoOwesALeaseIsAskedAndThenTakenToHang) {
  DaemonWatch watch(seconds(10));
  watch.Connected(kConnected);
  watch.RequestedLease(kConnected + seconds(1));
  watch.RequestedLease(kConnected + seconds(2));  // the older debt counts
  EXPECT_EQ(watch.ask_at(), kConnected + milliseconds(1500));
  EXPECT_EQ(watch.hangs_at(), kNever);
  watch.Asked(kConnected + milliseconds(1500));
  EXPECT_EQ(watch.ask_at(), kNever);
  EXPECT_EQ(watch.hangs_at(), kConnected + milliseconds(3500));
  watch.Heard(kConnected + seconds(3));
  EXPECT_EQ(watch.hangs_at(), kNever);
}

TEST(DaemonWatch, OneThatOwesNothingIsAskedNowAndThen) {
  DaemonWatch watch(seconds(10));
  EXPECT_EQ(watch.ask_at(), kNever) << "there is none";
  watch.Connected(kConnected);
  EXPECT_EQ(watch.ask_at(), kConnected + seconds(5));
  watch.Lost();
  EXPECT_EQ(watch.ask_at(), kNever);
}

TEST(DaemonWatch, WhoeverAskedLateWaitsAsLong) {
  DaemonWatch watch(seconds(10));
  watch.Connected(kConnected);
  watch.RequestedLease(kConnected);
  watch.Asked(kConnected + seconds(60));  // we were stopped ourselves
  EXPECT_EQ(watch.hangs_at(), kConnected + seconds(62));
}

TEST(DaemonWatch, AShortLeaseDoesNotMakeASlowDaemonAHangingOne) {
  DaemonWatch watch(milliseconds(500));
  watch.Connected(kConnected);
  watch.RequestedLease(kConnected);
  watch.Asked(watch.ask_at());
  EXPECT_EQ(watch.hangs_at(), kConnected + milliseconds(1025));
}

}  // namespace
}  // namespace trainctl
