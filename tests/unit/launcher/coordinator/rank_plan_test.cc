#include "launcher/coordinator/rank_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"

namespace trainctl {
namespace {

using testing::ElementsAre;

NodePlace Place(const std::string& name, int seat = -1, int workers = 1) {
  NodePlace place;
  place.name = name;
  place.seat = seat;
  place.workers = workers;
  return place;
}

std::vector<std::string> Names(const RankPlan& plan) {
  std::vector<std::string> names;
  for (const NodePlace& node : plan.nodes) names.push_back(node.name);
  return names;
}

TEST(RankPlan, OrdersNamesByTheirNumbers) {
  EXPECT_TRUE(NumericLess("n2", "n10"));
  EXPECT_FALSE(NumericLess("n10", "n2"));
  EXPECT_TRUE(NumericLess("rack1-n9", "rack1-n10"));
  EXPECT_TRUE(NumericLess("rack2-n1", "rack10-n1"));
  EXPECT_TRUE(NumericLess("n", "n1"));
  EXPECT_TRUE(NumericLess("n01", "n1") != NumericLess("n1", "n01"));
  EXPECT_FALSE(NumericLess("n7", "n7"));
  EXPECT_TRUE(NumericLess("n18446744073709551616", "n18446744073709551617"));
}

TEST(RankPlan, OrdersSwitchesFromTheOutermostInwards) {
  EXPECT_TRUE(TopologyLess("s1.s9", "s1.s10"));
  EXPECT_TRUE(TopologyLess("s2.s9.n1", "s10.s1.n0"));
  EXPECT_TRUE(TopologyLess("s1", "s1.s1"));
  EXPECT_FALSE(TopologyLess("s1.s1", "s1"));
  EXPECT_TRUE(TopologyLess("s9", "")) << "an unknown place comes last";
  EXPECT_FALSE(TopologyLess("", "s9"));
  EXPECT_FALSE(TopologyLess("", ""));
}

TEST(RankPlan, FirstPlacementFollowsNumericNameOrder) {
  const RankPlan plan = PlanRanks({Place("n10"), Place("n2"), Place("n1")}, {});
  EXPECT_THAT(Names(plan), ElementsAre("n1", "n2", "n10"));
  EXPECT_EQ(plan.reason, "nodes in numeric name order");
}

TEST(RankPlan, NodesOfOneSwitchAreNeighboursWhateverTheirNames) {
  std::vector<NodePlace> nodes;
  for (int i = 0; i < 6; ++i) {
    nodes.push_back(Place(absl::StrCat("n", i)));
    nodes.back().topology = absl::StrCat("s0.s", 2 - i % 2, ".n", i);
  }
  EXPECT_THAT(Names(PlanRanks(nodes, {})), ElementsAre("n1", "n3", "n5", "n0", "n2", "n4"));
}

TEST(RankPlan, AnOrderThatWasAskedForWins) {
  std::vector<NodePlace> nodes = {Place("n1"), Place("n2"), Place("n3")};
  nodes[0].topology = "s0";
  nodes[2].position = 0;
  nodes[1].position = 1;
  EXPECT_THAT(Names(PlanRanks(nodes, {})), ElementsAre("n3", "n2", "n1"));
}

TEST(RankPlan, ASpareTakesTheRanksOfTheDeadNode) {
  const RankPlan plan = PlanRanks({Place("n1", 0), Place("n3", 2), Place("n9")}, {1, 1, 1});
  EXPECT_THAT(Names(plan), ElementsAre("n1", "n9", "n3"));
  EXPECT_EQ(plan.reason, "2 nodes keep their ranks, the free ones go to n9");
}

TEST(RankPlan, ASpareWithAsManyWorkersAsTheDeadNodeIsPreferred) {
  const RankPlan plan = PlanRanks(
      {Place("n1", 0, 8), Place("n3", 2, 8), Place("n5", -1, 8), Place("n4", -1, 4)}, {8, 4, 8});
  EXPECT_THAT(Names(plan), ElementsAre("n1", "n4", "n3", "n5"));
}

TEST(RankPlan, UnchangedMembersKeepTheirRanksWhateverTheOrder) {
  const RankPlan plan = PlanRanks({Place("n1", 1), Place("n2", 2), Place("n3", 0)}, {4, 4, 4});
  EXPECT_THAT(Names(plan), ElementsAre("n3", "n1", "n2"));
  EXPECT_EQ(plan.reason, "every node keeps its ranks");
}

TEST(RankPlan, InASmallerWorldOnlyThoseBeyondItMove) {
  const RankPlan plan = PlanRanks({Place("n1", 0), Place("n3", 2), Place("n4", 3)}, {1, 1, 1, 1});
  EXPECT_THAT(Names(plan), ElementsAre("n1", "n4", "n3"));
}

TEST(RankPlan, ALargerWorldGrowsAtItsEnd) {
  const RankPlan plan = PlanRanks({Place("n0"), Place("n5", 0)}, {1});
  EXPECT_THAT(Names(plan), ElementsAre("n5", "n0"));
}

TEST(RankPlan, OfManyNamesOnlyTheFirstAreShown) {
  std::vector<std::string> names;
  for (int i = 0; i < 100; ++i) names.push_back(absl::StrCat("n", i));
  EXPECT_EQ(NameList(names), "n0, n1, n2, n3, n4, n5, n6, n7 and 92 more");
  names.resize(9);
  EXPECT_EQ(NameList(names), "n0, n1, n2, n3, n4, n5, n6, n7, n8");
}

}  // namespace
}  // namespace trainctl
