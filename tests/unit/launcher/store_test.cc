#include "launcher/store.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace trainctl {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr Epoch kEpoch(3);

Store::Publication Of(int rank, const std::string& name, const std::string& value,
                      Duration timeout = seconds(30), Epoch epoch = kEpoch) {
  return {epoch, rank, name, value, timeout};
}

class StoreTest : public ::testing::Test {
 protected:
  StoreTest() { store_.Open(kEpoch, {"n1", "n1", "n2", "n2"}); }
  Store store_;
  Instant now_{1000};
};

TEST_F(StoreTest, AnswersEachNodeOnceWhenTheLastRankHasPublished) {
  EXPECT_THAT(store_.Publish(now_, "n1", {Of(0, "id", "a"), Of(1, "id", "b")}), IsEmpty());
  EXPECT_THAT(store_.Publish(now_, "n2", {Of(3, "id", "d")}), IsEmpty());
  const auto answers = store_.Publish(now_ + seconds(1), "n2", {Of(2, "id", "c")});
  ASSERT_THAT(answers, SizeIs(2));
  EXPECT_EQ(answers[0].node, "n1");
  EXPECT_EQ(answers[1].node, "n2");
  EXPECT_THAT(answers[0].values, ElementsAre("a", "b", "c", "d"));
  EXPECT_EQ(store_.last_completed(), now_ + seconds(1));
  EXPECT_EQ(store_.next_deadline(), kNever);
}

TEST_F(StoreTest, NamesTheRanksThatAreMissingWhenTheTimeIsOver) {
  store_.Publish(now_, "n1", {Of(0, "gloo/mesh", "a")});
  store_.Publish(now_ + seconds(5), "n2", {Of(2, "gloo/mesh", "c")});
  EXPECT_EQ(store_.next_deadline(), now_ + seconds(30));
  EXPECT_THAT(store_.Expire(now_ + seconds(29)), IsEmpty());
  const auto answers = store_.Expire(now_ + seconds(30));
  ASSERT_THAT(answers, SizeIs(2));
  EXPECT_EQ(answers[0].error, "rank 1 (n1), rank 3 (n2) have not published gloo/mesh after 30 s");
  EXPECT_EQ(store_.next_deadline(), kNever);
}

TEST_F(StoreTest, ANameThatTimedOutStaysSo) {
  store_.Publish(now_, "n1", {Of(0, "id", "a"), Of(1, "id", "b")});
  store_.Publish(now_, "n2", {Of(2, "id", "c")});
  store_.Expire(now_ + seconds(30));
  const auto answers = store_.Publish(now_ + seconds(31), "n2", {Of(3, "id", "late")});
  ASSERT_THAT(answers, SizeIs(1));
  EXPECT_EQ(answers[0].error, "rank 3 (n2) has not published id after 30 s");
}

TEST_F(StoreTest, ANodeThatPublishesAgainIsAnsweredAgainAndNobodyElse) {
  const std::vector<Store::Publication> mine = {Of(0, "id", "a"), Of(1, "id", "b")};
  store_.Publish(now_, "n1", mine);
  store_.Publish(now_, "n2", {Of(2, "id", "c"), Of(3, "id", "d")});
  const auto answers = store_.Publish(now_, "n1", mine);
  ASSERT_THAT(answers, SizeIs(1));
  EXPECT_EQ(answers[0].node, "n1");
  EXPECT_THAT(answers[0].values, ElementsAre("a", "b", "c", "d"));
}

TEST_F(StoreTest, ANewStoreIsFilledByNodesThatPublishAgain) {
  Store next;
  next.Open(kEpoch, {"n1", "n2"});
  next.Publish(now_, "n1", {Of(0, "id", "a")});
  EXPECT_THAT(next.Publish(now_, "n2", {Of(1, "id", "b")}), SizeIs(2));
}

TEST_F(StoreTest, IgnoresOtherEpochsAndRanksOfOtherNodes) {
  store_.Publish(now_, "n1",
                 {Of(0, "id", "a"), Of(2, "id", "not mine"), Of(9, "id", "none"),
                  Of(-1, "id", "none"), Of(1, "id", "old", seconds(30), Epoch(2))});
  store_.Publish(now_, "n2", {Of(2, "id", "c"), Of(3, "id", "d")});
  EXPECT_THAT(store_.Publish(now_, "n1", {Of(1, "id", "b")}), SizeIs(2));
}

TEST_F(StoreTest, ANewEpochBeginsEmpty) {
  store_.Publish(now_, "n1", {Of(0, "id", "a")});
  store_.Open(Epoch(4), {"n1"});
  EXPECT_EQ(store_.next_deadline(), kNever);
  const auto answers = store_.Publish(now_, "n1", {Of(0, "id", "x", seconds(1), Epoch(4))});
  ASSERT_THAT(answers, SizeIs(1));
  EXPECT_THAT(answers[0].values, ElementsAre("x"));
}

TEST_F(StoreTest, RefusesMoreThanItsLimit) {
  const std::string large(Store::kMaxBytes, 'x');
  const auto answers = store_.Publish(now_, "n1", {Of(0, "id", large)});
  ASSERT_THAT(answers, SizeIs(2));
  EXPECT_THAT(answers[0].error, ::testing::HasSubstr("full"));
}

}  // namespace
}  // namespace trainctl
