#include "launcher/coordinator/restart_policy.h"

#include <gtest/gtest.h>

#include "absl/strings/match.h"

namespace trainctl {
namespace {

EpochEnd EndAt(int64_t second, FailureClass failure_class = FailureClass::kWorker) {
  EpochEnd end;
  end.at = Instant{} + seconds(second);
  end.failure_class = failure_class;
  return end;
}

JobSpec PolicySpec(int max_restarts) {
  JobSpec spec;
  spec.max_restarts = max_restarts;
  return spec;
}

TEST(RestartPolicy, SpendsTheBudgetOnTheScriptsOwnFailuresOnly) {
  const struct {
    FailureClass failure_class;
    bool restarts;
  } kCases[] = {
      {FailureClass::kWorker, false},         {FailureClass::kOutOfMemory, false},
      {FailureClass::kGpuOutOfMemory, false}, {FailureClass::kHang, false},
      {FailureClass::kUserError, false},      {FailureClass::kNodeLost, true},
      {FailureClass::kNetwork, true},         {FailureClass::kDisk, false},
      {FailureClass::kPreempted, true},       {FailureClass::kInternal, true},
  };
  for (const auto& c : kCases) {
    RestartPolicy policy;
    EXPECT_EQ(policy.Decide(PolicySpec(0), EndAt(0, c.failure_class)).restart, c.restarts)
        << FailureClassName(c.failure_class);
  }
}

TEST(RestartPolicy, ADamagedCheckpointIsPassedByAndAFullDiskIsNot) {
  RestartPolicy policy;
  EpochEnd end = EndAt(0, FailureClass::kDisk);
  const RestartDecision full = policy.Decide(PolicySpec(9), end);
  EXPECT_FALSE(full.restart);
  EXPECT_TRUE(full.mendable);
  end.found_damage = true;
  EXPECT_TRUE(policy.Decide(PolicySpec(0), end).restart);
}

TEST(RestartPolicy, AUserErrorIsNeverTriedAgain) {
  RestartPolicy policy;
  const RestartDecision decision =
      policy.Decide(PolicySpec(100), EndAt(0, FailureClass::kUserError));
  EXPECT_FALSE(decision.restart);
  EXPECT_FALSE(decision.mendable);
}

TEST(RestartPolicy, StopsWhenTheBudgetIsUsed) {
  RestartPolicy policy;
  EXPECT_TRUE(policy.Decide(PolicySpec(2), EndAt(0)).restart);
  EXPECT_TRUE(policy.Decide(PolicySpec(2), EndAt(1, FailureClass::kNodeLost)).restart);
  EXPECT_TRUE(policy.Decide(PolicySpec(2), EndAt(2)).restart);
  const RestartDecision decision = policy.Decide(PolicySpec(2), EndAt(3));
  EXPECT_FALSE(decision.restart);
  EXPECT_TRUE(decision.mendable);
}

TEST(RestartPolicy, TheWindowBoundsEveryClassAndMovesOn) {
  JobSpec spec = PolicySpec(0);
  spec.window_restarts = 2;
  spec.restart_window = seconds(100);
  RestartPolicy policy;
  EXPECT_TRUE(policy.Decide(spec, EndAt(0, FailureClass::kNodeLost)).restart);
  EXPECT_TRUE(policy.Decide(spec, EndAt(50, FailureClass::kNodeLost)).restart);
  EXPECT_FALSE(policy.Decide(spec, EndAt(99, FailureClass::kNodeLost)).restart);
  EXPECT_TRUE(policy.Decide(spec, EndAt(100, FailureClass::kNodeLost)).restart);
}

TEST(RestartPolicy, BacksOffUpToHalfAMinute) {
  JobSpec spec = PolicySpec(100);
  spec.window_restarts = 100;
  RestartPolicy policy;
  int64_t at = 0;
  for (const int64_t expected : {0, 1, 2, 4, 8, 16, 30, 30}) {
    EXPECT_EQ(policy.Decide(spec, EndAt(++at)).delay, Duration(seconds(expected)));
  }
  EpochEnd lived = EndAt(++at);
  lived.ran = seconds(10);
  EXPECT_EQ(policy.Decide(spec, lived).delay, Duration(0)) << "it had settled";
  EXPECT_EQ(policy.Decide(spec, EndAt(++at)).delay, Duration(0));
  EXPECT_EQ(policy.Decide(spec, EndAt(++at)).delay, Duration(seconds(1)));
}

TEST(RestartPolicy, StopsAfterEpochsWithoutANewStep) {
  JobSpec spec = PolicySpec(100);
  spec.no_progress_epochs = 2;
  RestartPolicy policy;
  EpochEnd end = EndAt(0);
  end.last_step = Step(7);
  EXPECT_TRUE(policy.Decide(spec, end).restart);
  end.resume_step = Step(5);
  end.last_step = Step(5);
  end.ran = seconds(3600);
  EXPECT_TRUE(policy.Decide(spec, end).restart);
  const RestartDecision decision = policy.Decide(spec, end);
  EXPECT_FALSE(decision.restart);
  EXPECT_FALSE(decision.mendable);
  end.found_damage = true;
  EXPECT_TRUE(policy.Decide(spec, end).restart) << "the next epoch starts from another checkpoint";
}

TEST(RestartPolicy, AScriptWithoutStepsIsBoundByItsBudgetAlone) {
  JobSpec spec = PolicySpec(6);
  spec.no_progress_epochs = 1;
  RestartPolicy policy;
  for (int i = 0; i < 6; ++i) EXPECT_TRUE(policy.Decide(spec, EndAt(i)).restart);
  EXPECT_FALSE(policy.Decide(spec, EndAt(6)).restart);
}

TEST(RestartPolicy, RemembersWhatTheJournalSays) {
  RestartPolicy policy;
  policy.Remember(EndAt(1'000'000));
  policy.Shift(seconds(-999'000), Instant{} + seconds(500));
  EXPECT_FALSE(policy.Decide(PolicySpec(1), EndAt(600)).restart);
  JobSpec spec = PolicySpec(2);
  spec.window_restarts = 1;
  spec.restart_window = seconds(100);
  EXPECT_TRUE(policy.Decide(spec, EndAt(600)).restart) << "nothing lies in the future";
}

EpochEnd On(const std::string& node, int64_t second, FailureClass failure_class) {
  EpochEnd end = EndAt(second, failure_class);
  end.node = node;
  return end;
}

TEST(RestartPolicy, BlamesANodeThatFailsTwiceWithinTheWindow) {
  JobSpec spec = PolicySpec(100);
  spec.restart_window = seconds(100);
  RestartPolicy policy;
  policy.Decide(spec, On("n2", 0, FailureClass::kNodeLost));
  policy.Decide(spec, On("n1", 10, FailureClass::kWorker));
  EXPECT_TRUE(policy.Blamed(spec, Instant{} + seconds(20)).empty());
  policy.Decide(spec, On("n2", 30, FailureClass::kWorker));
  const auto blamed = policy.Blamed(spec, Instant{} + seconds(40));
  ASSERT_EQ(blamed.size(), 1u);
  EXPECT_EQ(blamed[0].node, "n2");
  EXPECT_FALSE(blamed[0].by_script);
  EXPECT_EQ(blamed[0].reason, "it failed 2 times within 100 s");
  EXPECT_TRUE(policy.Blamed(spec, Instant{} + seconds(100)).empty()) << "the window moves on";
  EXPECT_TRUE(policy.Forgive("n2"));
  EXPECT_FALSE(policy.Forgive("n2"));
  EXPECT_TRUE(policy.Blamed(spec, Instant{} + seconds(40)).empty());
}

TEST(RestartPolicy, ToBlameANodeItMustBeItsOwnFailure) {
  const JobSpec spec = PolicySpec(100);
  RestartPolicy policy;
  for (int i = 0; i < 2; ++i) {
    policy.Decide(spec, On("preempted", i, FailureClass::kPreempted));
    policy.Decide(spec, On("", i, FailureClass::kNodeLost));
    policy.Decide(spec, On("script", i, FailureClass::kWorker));
  }
  const auto blamed = policy.Blamed(spec, Instant{} + seconds(5));
  ASSERT_EQ(blamed.size(), 1u);
  EXPECT_EQ(blamed[0].node, "script");
  EXPECT_TRUE(blamed[0].by_script);
}

}  // namespace
}  // namespace trainctl
