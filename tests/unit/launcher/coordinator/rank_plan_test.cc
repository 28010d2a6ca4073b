#include "launcher/coordinator/rank_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace trainctl {
namespace {

using testing::ElementsAre;

std::vector<NodePlace> Nodes(const std::vector<std::string>& names) {
  std::vector<NodePlace> nodes;
  int port = 1000;
  for (const std::string& name : names) nodes.push_back({name, "addr-" + name, port++});
  return nodes;
}

std::vector<RankPlace> Placed(const std::vector<std::string>& names, int workers = 1) {
  std::vector<RankPlace> ranks;
  for (const std::string& name : names) {
    for (int i = 0; i < workers; ++i) {
      ranks.push_back({static_cast<int>(ranks.size()), i, name, ""});
    }
  }
  return ranks;
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

TEST(RankPlan, FirstPlacementFollowsNumericNameOrder) {
  const RankPlan plan = PlanRanks(Nodes({"n10", "n2", "n1"}), {}, 2);
  EXPECT_THAT(NodesOf(plan.ranks), ElementsAre("n1", "n2", "n10"));
  ASSERT_EQ(plan.ranks.size(), 6u);
  EXPECT_EQ(plan.ranks[3].rank, 3);
  EXPECT_EQ(plan.ranks[3].local_rank, 1);
  EXPECT_EQ(plan.ranks[3].node, "n2");
  EXPECT_EQ(plan.ranks[3].address, "addr-n2");
  EXPECT_EQ(plan.master_address, "addr-n1");
  EXPECT_EQ(plan.master_port, 1002);
}

TEST(RankPlan, ASpareTakesTheRanksOfTheDeadNode) {
  const RankPlan plan = PlanRanks(Nodes({"n1", "n3", "n9"}), Placed({"n1", "n2", "n3"}), 1);
  EXPECT_THAT(NodesOf(plan.ranks), ElementsAre("n1", "n9", "n3"));
}

TEST(RankPlan, UnchangedMembersKeepTheirRanksWhateverTheOrder) {
  const RankPlan plan = PlanRanks(Nodes({"n1", "n2", "n3"}), Placed({"n3", "n1", "n2"}, 4), 4);
  EXPECT_THAT(NodesOf(plan.ranks), ElementsAre("n3", "n1", "n2"));
  EXPECT_EQ(plan.reason, "every node keeps its ranks");
}

TEST(RankPlan, InASmallerWorldOnlyThoseBeyondItMove) {
  const RankPlan plan = PlanRanks(Nodes({"n1", "n3", "n4"}), Placed({"n1", "n2", "n3", "n4"}), 1);
  EXPECT_THAT(NodesOf(plan.ranks), ElementsAre("n1", "n4", "n3"));
}

TEST(RankPlan, ALargerWorldGrowsAtItsEnd) {
  const RankPlan plan = PlanRanks(Nodes({"n0", "n5"}), Placed({"n5"}), 1);
  EXPECT_THAT(NodesOf(plan.ranks), ElementsAre("n5", "n0"));
}

}  // namespace
}  // namespace trainctl
