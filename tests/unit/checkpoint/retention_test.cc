#include "runtime/checkpoint/retention.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace trainctl {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST(Retention, KeepsTheNewestAndSaysWhyTheOthersMayGo) {
  const auto decision = DecideRetention({Step(300), Step(100), Step(200)}, 2, std::nullopt);
  EXPECT_THAT(decision.may_delete, ElementsAre(Step(100)));
  EXPECT_EQ(decision.reason, "older than the newest 2 checkpoints");
}

TEST(Retention, NeverDeletesTheOneInUse) {
  EXPECT_THAT(DecideRetention({Step(1), Step(2), Step(3), Step(4)}, 1, Step(2)).may_delete,
              ElementsAre(Step(1), Step(3)));
}

TEST(Retention, ZeroKeepsAllAndFewerThanKeepLosesNone) {
  EXPECT_THAT(DecideRetention({Step(1), Step(2)}, 0, std::nullopt).may_delete, IsEmpty());
  EXPECT_THAT(DecideRetention({Step(1), Step(2)}, 2, std::nullopt).may_delete, IsEmpty());
  EXPECT_THAT(DecideRetention({}, 1, std::nullopt).may_delete, IsEmpty());
}

TEST(Retention, CountsAStepTwiceGivenOnce) {
  EXPECT_THAT(DecideRetention({Step(1), Step(2), Step(2)}, 2, std::nullopt).may_delete, IsEmpty());
}

}  // namespace
}  // namespace trainctl
