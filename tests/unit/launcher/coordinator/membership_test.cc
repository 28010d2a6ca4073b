#include "launcher/coordinator/membership.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"

namespace trainctl {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr Instant kStart{1'000'000'000};

JobSpec Spec(int nodes = 8, int spares = 0) {
  JobSpec spec;
  spec.lease = seconds(10);
  spec.max_nodes = nodes;
  spec.spares = spares;
  spec.workers_per_node = 4;
  return spec;
}

NodeJoined Joined(const std::string& name, int64_t incarnation = 1) {
  NodeJoined joined;
  joined.node = name;
  joined.incarnation = Incarnation(incarnation);
  joined.addresses = {{"eth0", absl::StrCat("addr-", name)}};
  joined.slots = 4;
  joined.reserved_port = 29500;
  return joined;
}

NodeJoined FromMachine(const std::string& name, const std::string& machine,
                       const std::string& address) {
  NodeJoined joined = Joined(name);
  joined.machine = machine;
  joined.addresses = {{"eth0", address}};
  return joined;
}

EpochFormed EpochOn(const std::vector<std::string>& names, int number = 0) {
  EpochFormed epoch;
  epoch.epoch = Epoch(number);
  for (const std::string& name : names) {
    epoch.nodes.push_back({name, "", "", epoch.world_size(), 4});
  }
  return epoch;
}

std::vector<std::string> Names(const std::vector<const Node*>& nodes) {
  std::vector<std::string> names;
  for (const Node* node : nodes) names.push_back(node->name);
  return names;
}

TEST(Membership, AnOlderLifeOfADaemonIsRefused) {
  Membership members(Spec());
  members.AdvanceTo(kStart);
  EXPECT_TRUE(members.Join(Joined("n1", 5)).accepted);
  EXPECT_TRUE(members.Join(Joined("n1", 4)).old);
  EXPECT_FALSE(members.Leave({"n1", Incarnation(4), ""}));
  EXPECT_TRUE(members.Find("n1")->connected);
  EXPECT_TRUE(members.Join(Joined("n1", 6)).accepted);
  EXPECT_FALSE(members.DecideLease({"n1", Incarnation(5), 1}, Epoch(0), false).granted);
  EXPECT_FALSE(members.Leave({"unknown", Incarnation(1), ""}));
}

TEST(Membership, ASecondMachineUnderTheSameNameIsRefusedNamingBothAddresses) {
  Membership members(Spec());
  members.AdvanceTo(kStart);
  EXPECT_TRUE(members.Join(FromMachine("n1", "a", "10.0.0.1")).accepted);
  const Membership::JoinDecision decision = members.Join(FromMachine("n1", "b", "10.0.0.9"));
  EXPECT_FALSE(decision.accepted);
  EXPECT_FALSE(decision.old);
  EXPECT_THAT(decision.reason, HasSubstr("10.0.0.1"));
  EXPECT_THAT(decision.reason, HasSubstr("10.0.0.9"));
  EXPECT_EQ(members.Find("n1")->machine, "a");
}

TEST(Membership, AMachineIsReplacedOnceTheLeaseOfTheOldOneIsOver) {
  Membership members(Spec());
  members.AdvanceTo(kStart);
  members.Join(FromMachine("n1", "a", "10.0.0.1"));
  members.BeginEpoch(EpochOn({"n1"}));
  members.Leave({"n1", Incarnation(1), "cut"});
  members.AdvanceTo(kStart + seconds(5));
  const Membership::JoinDecision early = members.Join(FromMachine("n1", "b", "10.0.0.9"));
  EXPECT_FALSE(early.accepted);
  EXPECT_THAT(early.reason, HasSubstr("ends in 6.0 s"));
  members.AdvanceTo(kStart + seconds(11));
  EXPECT_TRUE(members.EndOneLease());
  EXPECT_TRUE(members.Join(FromMachine("n1", "b", "10.0.0.9")).accepted);
  EXPECT_EQ(members.Find("n1")->machine, "b");
}

TEST(Membership, ANodeRankBelongsToOneNode) {
  Membership members(Spec());
  NodeJoined first = Joined("n1");
  first.node_rank = 1;
  NodeJoined second = Joined("n2");
  second.node_rank = 1;
  EXPECT_TRUE(members.Join(first).accepted);
  const Membership::JoinDecision decision = members.Join(second);
  EXPECT_FALSE(decision.accepted);
  EXPECT_THAT(decision.reason, HasSubstr("addr-n1"));
  EXPECT_THAT(decision.reason, HasSubstr("addr-n2"));
  EXPECT_TRUE(members.Join(first).accepted) << "the same node again";
  members.Leave({"n1", Incarnation(1), "cut"});
  EXPECT_TRUE(members.Join(second).accepted);
}

TEST(Membership, NodesBeyondMembersAndSparesAreRefused) {
  Membership members(Spec(2, 1));
  EXPECT_TRUE(members.Join(Joined("n1")).accepted);
  EXPECT_TRUE(members.Join(Joined("n2")).accepted);
  EXPECT_TRUE(members.Join(Joined("n3")).accepted);
  EXPECT_THAT(members.Join(Joined("n4")).reason, HasSubstr("all the nodes that it takes, 3"));
  EXPECT_TRUE(members.Join(Joined("n3", 2)).accepted) << "one that is here may come again";
  members.Leave({"n2", Incarnation(1), "cut"});
  EXPECT_TRUE(members.Join(Joined("n4")).accepted);
  EXPECT_FALSE(members.Join(Joined("n2")).accepted) << "its place is taken";
}

TEST(Membership, ADrainedNodeMakesRoomForAnother) {
  Membership members(Spec(1));
  members.Join(Joined("n1"));
  members.BeginEpoch(EpochOn({"n1"}));
  members.MarkDrained("n1", true);
  EXPECT_EQ(members.drained_members(), 1u);
  EXPECT_TRUE(members.Join(Joined("n2")).accepted);
  members.MarkGone("n1");
  EXPECT_EQ(members.drained_members(), 0u);
  EXPECT_THAT(Names(members.Usable()), ElementsAre("n2"));
  members.MarkDrained("n1", false);
  EXPECT_THAT(Names(members.Usable()), ElementsAre("n1", "n2"));
}

TEST(Membership, UsableNodesAreConnectedEmptyAndLargeEnough) {
  Membership members(Spec());
  members.Join(Joined("n10"));
  members.Join(Joined("n9"));
  NodeJoined small = Joined("small");
  small.slots = 1;
  EXPECT_THAT(members.Join(small).reason, HasSubstr("can take 1 workers"));
  NodeJoined busy = Joined("busy");
  busy.epoch = Epoch(0);
  busy.gone = false;
  members.Join(busy);
  members.Join(Joined("away"));
  members.Leave({"away", Incarnation(1), "cut"});
  EXPECT_THAT(Names(members.Usable()), ElementsAre("n9", "n10"));
  EXPECT_EQ(members.usable(), 2u);
  members.BeginEpoch(EpochOn({"n10"}));
  members.MarkGone("n10");
  EXPECT_THAT(Names(members.Usable()), ElementsAre("n10", "n9")) << "members come first";
}

TEST(Membership, EveryNodeMayTakeAsManyWorkersAsItHasSlots) {
  JobSpec spec = Spec();
  spec.workers_per_node = kEverySlot;
  Membership members(spec);
  NodeJoined large = Joined("large");
  large.slots = 8;
  members.Join(large);
  members.Join(Joined("small"));
  EXPECT_EQ(members.WorkersOn(*members.Find("large")), 8);
  EXPECT_EQ(members.WorkersOn(*members.Find("small")), 4);
  NodeJoined empty = Joined("empty");
  empty.slots = 0;
  EXPECT_FALSE(members.Join(empty).accepted);
}

TEST(Membership, ANodeIsLostALeaseAndASecondAfterItsLastAnswer) {
  Membership members(Spec());
  members.AdvanceTo(kStart);
  members.Join(Joined("n1"));
  members.Join(Joined("n2"));
  members.BeginEpoch(EpochOn({"n1", "n2"}));
  EXPECT_EQ(members.next_lease_end(), kStart + seconds(11));
  members.AdvanceTo(kStart + seconds(4));
  EXPECT_TRUE(members.DecideLease({"n1", Incarnation(1), 1}, Epoch(0), false).granted);
  EXPECT_EQ(members.next_lease_end(), kStart + seconds(11)) << "of n2";
  members.AdvanceTo(kStart + seconds(11) - Duration(1));
  EXPECT_FALSE(members.EndOneLease());
  members.AdvanceTo(kStart + seconds(11));
  EXPECT_EQ(members.EndOneLease()->name, "n2");
  EXPECT_FALSE(members.EndOneLease());
  EXPECT_EQ(members.next_lease_end(), kStart + seconds(15));
  members.AdvanceTo(kStart + seconds(15));
  EXPECT_EQ(members.EndOneLease()->name, "n1");
  EXPECT_EQ(members.next_lease_end(), kNever);
  EXPECT_FALSE(members.DecideLease({"n1", Incarnation(1), 2}, Epoch(0), false).granted);
}

TEST(Membership, ARefusedRequestDoesNotLengthenTheLease) {
  Membership members(Spec());
  members.AdvanceTo(kStart);
  members.Join(Joined("n1"));
  members.BeginEpoch(EpochOn({"n1"}));
  members.AdvanceTo(kStart + seconds(9));
  EXPECT_FALSE(members.DecideLease({"n1", Incarnation(1), 1}, Epoch(0), true).granted);
  members.AdvanceTo(kStart + seconds(11));
  EXPECT_TRUE(members.EndOneLease());
}

TEST(Membership, WorkersOfAnOldEpochGetNoLease) {
  Membership members(Spec());
  NodeJoined joined = Joined("n1");
  joined.epoch = Epoch(3);
  joined.gone = false;
  members.Join(joined);
  EXPECT_FALSE(members.DecideLease({"n1", Incarnation(1), 1}, Epoch(4), false).granted);
  members.MarkGone("n1");
  EXPECT_TRUE(members.DecideLease({"n1", Incarnation(1), 2}, Epoch(4), false).granted)
      << "an idle shim may live on";
}

TEST(Membership, AConfirmedEndNeedsNoLease) {
  Membership members(Spec());
  members.Join(Joined("n1"));
  members.BeginEpoch(EpochOn({"n1"}));
  EXPECT_EQ(members.starting(), 1u);
  members.MarkStarted("n1", 29501);
  EXPECT_EQ(members.starting(), 0u);
  EXPECT_EQ(members.Find("n1")->reserved_port, 29501);
  members.MarkGone("n1");
  EXPECT_THAT(members.HoldingWorkers(), IsEmpty());
  EXPECT_EQ(members.holding(), 0u);
  EXPECT_EQ(members.next_lease_end(), kNever);
}

TEST(Membership, AfterAReplayNobodyWaitsForANodeThatWasLostBefore) {
  Membership members{Spec()};
  members.AdvanceTo(Instant{1});
  members.ExpectEpoch(EpochOn({"n1", "n2"}), {"n2"});
  EXPECT_EQ(members.holding(), 1u);
  EXPECT_EQ(members.StandingOf(*members.Find("n1")), NodeStanding::kLate);
  EXPECT_EQ(members.StandingOf(*members.Find("n2")), NodeStanding::kLost);
}

TEST(Membership, AfterAReplayNodesHaveAWholeLeaseToComeBack) {
  Membership members(Spec());
  members.AdvanceTo(kStart);
  members.ExpectEpoch(EpochOn({"n1"}), {});
  EXPECT_EQ(members.starting(), 1u);
  EXPECT_EQ(members.next_lease_end(), kStart + seconds(11));
  EXPECT_THAT(members.Usable(), IsEmpty());
  EXPECT_EQ(members.StandingOf(*members.Find("n1")), NodeStanding::kLate);
}

TEST(Membership, AfterAReplayAnotherMachineDoesNotTakeTheNodesPlace) {
  Membership members(Spec());
  EpochFormed epoch = EpochOn({"n1"});
  epoch.nodes[0].machine = "a";
  members.ExpectEpoch(epoch, {});
  EXPECT_FALSE(members.Join(FromMachine("n1", "b", "10.0.0.9")).accepted);
  EXPECT_TRUE(members.Join(FromMachine("n1", "a", "10.0.0.1")).accepted);
}

TEST(Membership, SaysWhereANodeStandsAndSinceWhen) {
  JobSpec spec = Spec();
  spec.nodes = {"n1", "n2"};
  Membership members(spec);
  EXPECT_EQ(members.StandingOf(*members.Find("n2")), NodeStanding::kExpected);
  const auto standing = [&] { return members.StandingOf(*members.Find("n1")); };
  members.AdvanceTo(kStart);
  members.Join(Joined("n1"));
  EXPECT_EQ(standing(), NodeStanding::kReady);
  EXPECT_EQ(members.Find("n1")->since, kStart);
  members.BeginEpoch(EpochOn({"n1"}));
  EXPECT_EQ(standing(), NodeStanding::kMember);
  members.AdvanceTo(kStart + seconds(1));
  members.Leave({"n1", Incarnation(1), "cut"});
  EXPECT_EQ(standing(), NodeStanding::kLate);
  EXPECT_EQ(members.Find("n1")->since, kStart + seconds(1));
  members.AdvanceTo(kStart + seconds(12));
  members.EndOneLease();
  EXPECT_EQ(standing(), NodeStanding::kLost);
  NodeJoined back = Joined("n1");
  back.epoch = Epoch(0);
  back.gone = false;
  members.Join(back);
  EXPECT_EQ(standing(), NodeStanding::kFenced);
  members.MarkGone("n1");
  members.Avoid("n1", "it failed twice", 1);
  EXPECT_EQ(standing(), NodeStanding::kUnfit);
  members.ForgetAvoided();
  members.MarkDrained("n1", true);
  EXPECT_EQ(standing(), NodeStanding::kDrained);
  members.Leave({"n1", Incarnation(1), "cut"});
  members.BeginEpoch(EpochOn({}, 1));
  EXPECT_EQ(standing(), NodeStanding::kAway);
}

}  // namespace
}  // namespace trainctl
