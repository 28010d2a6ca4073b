#include "launcher/coordinator/membership.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace trainctl {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr Instant kStart{1'000'000'000};

NodeJoined Joined(const std::string& name, int64_t incarnation = 1) {
  NodeJoined joined;
  joined.node = name;
  joined.incarnation = Incarnation(incarnation);
  joined.slots = 4;
  joined.reserved_port = 29500;
  return joined;
}

std::vector<RankPlace> OneRankOn(const std::string& name) { return {{0, 0, name, ""}}; }

std::vector<std::string> Names(const std::vector<NodePlace>& places) {
  std::vector<std::string> names;
  for (const NodePlace& place : places) names.push_back(place.name);
  return names;
}

TEST(Membership, AnOlderLifeOfADaemonIsRefused) {
  Membership members(seconds(10));
  EXPECT_TRUE(members.Join(Joined("n1", 5)));
  EXPECT_FALSE(members.Join(Joined("n1", 4)));
  EXPECT_FALSE(members.Leave({"n1", Incarnation(4), ""}));
  EXPECT_TRUE(members.Find("n1")->connected);
  EXPECT_TRUE(members.Join(Joined("n1", 6)));
  EXPECT_FALSE(members.DecideLease({"n1", Incarnation(5), 1}, Epoch(0), false, kStart).granted);
  EXPECT_FALSE(members.Leave({"unknown", Incarnation(1), ""}));
}

TEST(Membership, ReadyNodesAreConnectedEmptyAndLargeEnough) {
  Membership members(seconds(10));
  members.Join(Joined("n10"));
  members.Join(Joined("n9"));
  NodeJoined small = Joined("small");
  small.slots = 1;
  members.Join(small);
  NodeJoined busy = Joined("busy");
  busy.epoch = Epoch(0);
  busy.gone = false;
  members.Join(busy);
  members.Join(Joined("away"));
  members.Leave({"away", Incarnation(1), "cut"});
  EXPECT_THAT(Names(members.Ready(4, {})), ElementsAre("n9", "n10"));
  EXPECT_THAT(Names(members.Ready(4, OneRankOn("n10"))), ElementsAre("n10", "n9"));
}

TEST(Membership, ANodeIsLostALeaseAndASecondAfterItsLastAnswer) {
  Membership members(seconds(10));
  members.Join(Joined("n1"));
  members.BeginEpoch(Epoch(0), OneRankOn("n1"), kStart);
  EXPECT_EQ(members.next_lease_end(), kStart + seconds(11));
  EXPECT_TRUE(
      members.DecideLease({"n1", Incarnation(1), 1}, Epoch(0), false, kStart + seconds(4)).granted);
  EXPECT_THAT(members.EndLeases(kStart + seconds(15) - Duration(1)), IsEmpty());
  EXPECT_THAT(members.EndLeases(kStart + seconds(15)), ElementsAre("n1"));
  EXPECT_EQ(members.next_lease_end(), kNever);
  EXPECT_FALSE(members.DecideLease({"n1", Incarnation(1), 2}, Epoch(0), false, kStart + seconds(16))
                   .granted);
}

TEST(Membership, ARefusedRequestDoesNotLengthenTheLease) {
  Membership members(seconds(10));
  members.Join(Joined("n1"));
  members.BeginEpoch(Epoch(0), OneRankOn("n1"), kStart);
  EXPECT_FALSE(
      members.DecideLease({"n1", Incarnation(1), 1}, Epoch(0), true, kStart + seconds(9)).granted);
  EXPECT_THAT(members.EndLeases(kStart + seconds(11)), ElementsAre("n1"));
}

TEST(Membership, WorkersOfAnOldEpochGetNoLease) {
  Membership members(seconds(10));
  NodeJoined joined = Joined("n1");
  joined.epoch = Epoch(3);
  joined.gone = false;
  members.Join(joined);
  EXPECT_FALSE(members.DecideLease({"n1", Incarnation(1), 1}, Epoch(4), false, kStart).granted);
  members.MarkGone("n1");
  EXPECT_TRUE(members.DecideLease({"n1", Incarnation(1), 2}, Epoch(4), false, kStart).granted)
      << "an idle shim may live on";
}

TEST(Membership, AConfirmedEndNeedsNoLease) {
  Membership members(seconds(10));
  members.Join(Joined("n1"));
  members.BeginEpoch(Epoch(0), OneRankOn("n1"), kStart);
  members.MarkStarted("n1", 29501);
  EXPECT_TRUE(members.AllStarted());
  EXPECT_EQ(members.Find("n1")->reserved_port, 29501);
  members.MarkGone("n1");
  EXPECT_THAT(members.HoldingWorkers(), IsEmpty());
  EXPECT_EQ(members.next_lease_end(), kNever);
}

TEST(Membership, AfterAReplayNodesHaveAWholeLeaseToComeBack) {
  Membership members(seconds(10));
  members.ExpectEpoch(OneRankOn("n1"), kStart);
  EXPECT_FALSE(members.AllStarted());
  EXPECT_EQ(members.next_lease_end(), kStart + seconds(11));
  EXPECT_THAT(Names(members.Ready(1, {})), IsEmpty());
}

}  // namespace
}  // namespace trainctl
