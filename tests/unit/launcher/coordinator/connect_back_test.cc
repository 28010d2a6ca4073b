#include "launcher/coordinator/connect_back.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace trainctl {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr Instant kNow{1'000'000'000};

ConnectBack::Peer Peer(const std::string& name, const std::vector<std::string>& addresses) {
  ConnectBack::Peer peer{name, {}, 29500, ""};
  for (const std::string& address : addresses) peer.addresses.push_back({"eth0", address});
  return peer;
}

std::vector<std::string> Names(const std::vector<ProbeAddress>& asks) {
  std::vector<std::string> names;
  for (const ProbeAddress& ask : asks) names.push_back(ask.node);
  return names;
}

ConnectBack ThreeNodes() {
  return ConnectBack({Peer("n1", {"a1", "b1"}), Peer("n2", {"a2"}), Peer("n3", {"a3"})}, 7);
}

TEST(ConnectBack, AsksEverybodyElseAboutEveryAddress) {
  ConnectBack meeting = ThreeNodes();
  const std::vector<ProbeAddress> asks = meeting.AskNext(kNow);
  EXPECT_THAT(Names(asks), ElementsAre("n2", "n3"));
  EXPECT_EQ(asks[0].probe, 7u);
  ASSERT_EQ(asks[0].targets.size(), 2u);
  EXPECT_EQ(asks[0].targets[1].address, "b1");
  EXPECT_EQ(asks[0].targets[1].port, 29500);
  EXPECT_THAT(meeting.Waited(), ElementsAre("n2", "n3"));
  EXPECT_FALSE(meeting.Complete(kNow));
  EXPECT_TRUE(meeting.Complete(meeting.deadline()));
}

TEST(ConnectBack, TheFirstAddressThatAllReachIsChosen) {
  ConnectBack meeting = ThreeNodes();
  meeting.AskNext(kNow);
  meeting.Take({"n2", 7, {{"a1", "own-a2"}, {"b1", "own-b2"}}});
  meeting.Take({"n3", 7, {{"b1", "own-b3"}}});
  ASSERT_TRUE(meeting.Complete(kNow));
  EXPECT_TRUE(meeting.Judge());
  EXPECT_EQ(meeting.Best().address, "b1");
  EXPECT_EQ(meeting.Best().own.at("n2"), "own-b2");
  EXPECT_EQ(meeting.Best().own.at("n3"), "own-b3");
  EXPECT_THAT(meeting.Best().trouble, IsEmpty());
}

TEST(ConnectBack, AnswersToNothingThatWasAskedAreIgnored) {
  ConnectBack meeting = ThreeNodes();
  meeting.AskNext(kNow);
  meeting.Take({"n2", 6, {{"a1", ""}}});
  meeting.Take({"n1", 7, {{"a1", ""}}});
  meeting.Take({"n9", 7, {{"a1", ""}}});
  EXPECT_THAT(meeting.Waited(), ElementsAre("n2", "n3"));
  meeting.Take({"n2", 7, {{"a1", ""}}});
  meeting.Take({"n2", 7, {}});
  EXPECT_THAT(meeting.Waited(), ElementsAre("n3"));
  meeting.Take({"n3", 7, {{"a1", ""}}});
  EXPECT_TRUE(meeting.Judge());
  EXPECT_EQ(meeting.Best().address, "a1");
}

TEST(ConnectBack, AnotherNodeIsTriedForRankZeroAndTheBestOneIsRemembered) {
  ConnectBack meeting = ThreeNodes();
  meeting.AskNext(kNow);
  meeting.Take({"n2", 7, {}});
  meeting.Take({"n3", 7, {}});
  EXPECT_FALSE(meeting.Judge());
  EXPECT_THAT(meeting.Best().unreached, ElementsAre("n2", "n3"));
  EXPECT_THAT(Names(meeting.AskNext(kNow)), ElementsAre("n1", "n3"));
  EXPECT_EQ(meeting.candidate().name, "n2");
  meeting.Take({"n1", 8, {}});
  meeting.Take({"n3", 8, {{"a2", ""}}});
  EXPECT_FALSE(meeting.Judge());
  EXPECT_THAT(Names(meeting.AskNext(kNow)), ElementsAre("n1", "n2"));
  EXPECT_TRUE(meeting.Complete(meeting.deadline()));
  EXPECT_FALSE(meeting.Judge());
  EXPECT_THAT(meeting.AskNext(kNow), IsEmpty());
  EXPECT_EQ(meeting.Best().candidate, 1u);
  EXPECT_THAT(meeting.Best().unreached, ElementsAre("n1"));
  EXPECT_THAT(meeting.Best().trouble, HasSubstr("n1 cannot reach n2 at a2 (eth0), port 29500"));
  EXPECT_THAT(meeting.first_trouble(), HasSubstr("n2, n3 cannot reach n1 at a1 (eth0) or b1"));
}

}  // namespace
}  // namespace trainctl
