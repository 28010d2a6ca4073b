#include "launcher/flag_value.h"

#include <gtest/gtest.h>

#include <csignal>

namespace trainctl {
namespace {

TEST(Duration, IsSecondsUnlessAUnitIsGiven) {
  EXPECT_EQ(*ParseDuration("10"), seconds(10));
  EXPECT_EQ(*ParseDuration("500ms"), milliseconds(500));
  EXPECT_EQ(*ParseDuration("1.5s"), milliseconds(1500));
  EXPECT_EQ(*ParseDuration("5m"), seconds(300));
  EXPECT_EQ(*ParseDuration("2h"), seconds(7200));
  EXPECT_EQ(*ParseDuration("0"), Duration(0));
}

TEST(Duration, RefusesWhatIsNone) {
  for (const char* text : {"", "s", "-1", "10d", "1e300", "nan", "inf", "5 m x", "0x10h5"}) {
    EXPECT_FALSE(ParseDuration(text).ok()) << text;
  }
}

TEST(NodeCount, IsOneNumberOrARange) {
  EXPECT_EQ(*ParseNodeCount("1"), std::make_pair(1, 1));
  EXPECT_EQ(*ParseNodeCount("2:4"), std::make_pair(2, 4));
  for (const char* text : {"0", "4:2", "1:2:3", "a", ""}) {
    EXPECT_FALSE(ParseNodeCount(text).ok()) << text;
  }
}

TEST(RestartWindow, SaysHowManyInWhatTime) {
  EXPECT_EQ(ParseRestartWindow("10 in 1h")->restarts, 10);
  EXPECT_EQ(ParseRestartWindow("10 in 1h")->within, seconds(3600));
  for (const char* text : {"10", "in 1h", "10 per 1h", "-1 in 1h", "10 in x"}) {
    EXPECT_FALSE(ParseRestartWindow(text).ok()) << text;
  }
}

TEST(Steps, MayBeCalledSteps) {
  EXPECT_EQ(*ParseSteps("200 steps"), 200);
  EXPECT_EQ(*ParseSteps("200"), 200);
  EXPECT_EQ(*ParseSteps("1 step"), 1);
  for (const char* text : {"0", "-5 steps", "5 minutes", ""}) {
    EXPECT_FALSE(ParseSteps(text).ok()) << text;
  }
}

TEST(StreamChoice, IsForAllWorkersOrForSome) {
  EXPECT_FALSE(StreamChoice().Has(0, 1));
  EXPECT_TRUE(StreamChoice::Parse("3")->Has(7, 2));
  EXPECT_FALSE(StreamChoice::Parse("1")->Has(0, 2));
  // A local rank of two digits, which torchrun refuses.
  const StreamChoice some = *StreamChoice::Parse("0:3,10:1");
  EXPECT_TRUE(some.Has(0, 2));
  EXPECT_TRUE(some.Has(10, 1));
  EXPECT_FALSE(some.Has(10, 2));
  EXPECT_FALSE(some.Has(1, 1));
  for (const char* text : {"4", "-1", "0:4", "0:", ":1", "x", "0:1,"}) {
    EXPECT_FALSE(StreamChoice::Parse(text).ok()) << text;
  }
}

TEST(RankList, HoldsNumbersAndRanges) {
  EXPECT_EQ(*ParseRankList("4,0-2,1"), (std::vector<int>{0, 1, 2, 4}));
  for (const char* text : {"", "2-1", "-1", "a", "1-2-3", "0-9999999"}) {
    EXPECT_FALSE(ParseRankList(text).ok()) << text;
  }
}

TEST(Signal, HasANameOrANumber) {
  EXPECT_EQ(*ParseSignal("TERM"), SIGTERM);
  EXPECT_EQ(*ParseSignal("sigusr1"), SIGUSR1);
  EXPECT_EQ(*ParseSignal("10"), 10);
  for (const char* text : {"", "0", "65", "NOPE", "-9"}) {
    EXPECT_FALSE(ParseSignal(text).ok()) << text;
  }
}

}  // namespace
}  // namespace trainctl
