#include "launcher/coordinator/checkpoint_ledger.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace trainctl {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

ShardValue Shard(int rank) { return {rank, "f", 1, "d"}; }

TEST(CheckpointLedger, GrantsOnceWhenEveryRanksShardIsThere) {
  CheckpointLedger ledger(3);
  EXPECT_FALSE(ledger.Prepared(Step(10), Shard(1), 2));
  EXPECT_FALSE(ledger.Prepared(Step(10), Shard(1), 2)) << "the same rank again is not another";
  const auto grant = ledger.Prepared(Step(10), Shard(0), 2);
  ASSERT_TRUE(grant);
  EXPECT_EQ(grant->shards.at(0).rank, 0);
  EXPECT_EQ(grant->shards.at(1).rank, 1);
  EXPECT_FALSE(ledger.Prepared(Step(10), Shard(0), 2));
  EXPECT_FALSE(ledger.Prepared(Step(10), Shard(1), 2));
}

TEST(CheckpointLedger, StepsDoNotShareShards) {
  CheckpointLedger ledger(3);
  EXPECT_FALSE(ledger.Prepared(Step(10), Shard(0), 2));
  EXPECT_FALSE(ledger.Prepared(Step(20), Shard(1), 2));
}

TEST(CheckpointLedger, IgnoresRanksThatDoNotExist) {
  CheckpointLedger ledger(3);
  EXPECT_FALSE(ledger.Prepared(Step(10), Shard(-1), 1));
  EXPECT_FALSE(ledger.Prepared(Step(10), Shard(1), 1));
}

TEST(CheckpointLedger, AnEpochsShardsDieWithIt) {
  CheckpointLedger ledger(3);
  EXPECT_FALSE(ledger.Prepared(Step(10), Shard(0), 2));
  ledger.BeginEpoch();
  EXPECT_FALSE(ledger.Prepared(Step(10), Shard(1), 2));
}

TEST(CheckpointLedger, RetentionDeletesOnlyWhatANewerCommitReplaces) {
  CheckpointLedger ledger(2);
  ledger.Found({Step(10), Step(20)});
  const auto grant = ledger.Prepared(Step(30), Shard(0), 1);
  ASSERT_TRUE(grant);
  EXPECT_THAT(grant->may_delete, ElementsAre(Step(10)));
  EXPECT_EQ(ledger.recovery_point(), Step(20)) << "granted is not committed";
  EXPECT_THAT(ledger.Committed(Step(30)), ElementsAre(Step(10)));
  EXPECT_EQ(ledger.recovery_point(), Step(30));
  EXPECT_THAT(ledger.Committed(Step(30)), IsEmpty());
}

TEST(CheckpointLedger, NeverDeletesTheStepJustWritten) {
  CheckpointLedger ledger(2);
  ledger.Found({Step(100), Step(200)});
  const auto grant = ledger.Prepared(Step(5), Shard(0), 1);
  ASSERT_TRUE(grant);
  EXPECT_THAT(grant->may_delete, ElementsAre(Step(100)));
}

TEST(CheckpointLedger, ADamagedStepIsNoRecoveryPointUntilWrittenAnew) {
  CheckpointLedger ledger(3);
  ledger.Found({Step(10), Step(20)});
  ledger.Damaged(Step(20));
  EXPECT_EQ(ledger.recovery_point(), Step(10));
  ledger.Found({Step(10), Step(20)});
  EXPECT_EQ(ledger.recovery_point(), Step(10));
  ledger.Committed(Step(20));
  EXPECT_EQ(ledger.recovery_point(), Step(20));
  ledger.Found({Step(20)});
  EXPECT_EQ(ledger.recovery_point(), Step(20));
}

TEST(CheckpointLedger, RemembersAStepThatWasWrittenAnewAfterDamage) {
  CheckpointLedger ledger(3);
  ledger.RememberCommitted(Step(20));
  ledger.Damaged(Step(20));
  ledger.RememberCommitted(Step(20));
  ledger.Found({Step(20)});
  EXPECT_EQ(ledger.recovery_point(), Step(20));
}

TEST(CheckpointLedger, WhereAnEpochBeganNothingNewerWasThere) {
  CheckpointLedger ledger(3);
  ledger.RememberCommitted(Step(10));
  ledger.RememberCommitted(Step(20));
  ledger.RememberRecoveryPoint(Step(10));
  EXPECT_EQ(ledger.recovery_point(), Step(10));
  ledger.RememberRecoveryPoint(Step(-1));
  EXPECT_EQ(ledger.recovery_point(), Step(-1));
}

TEST(CheckpointLedger, TrustsTheFolderOverItsMemory) {
  CheckpointLedger ledger(3);
  ledger.Committed(Step(10));
  ledger.Found({});
  EXPECT_EQ(ledger.recovery_point(), Step(-1));
}

}  // namespace
}  // namespace trainctl
