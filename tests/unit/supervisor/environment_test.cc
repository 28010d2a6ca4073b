#include "gmock/gmock.h"
#include "runtime/supervisor/process.h"

namespace trainctl {
namespace {

using ::testing::ElementsAre;

TEST(Environment, TheWorkersOwnValueWinsAtThePlaceOfTheCommonOne) {
  EXPECT_THAT(MergeEnvironment({"A=1", "B=2", "A=3"}, {"B=own", "C="}),
              ElementsAre("A=3", "B=own", "C="));
}

TEST(Environment, FindsAValueByItsWholeName) {
  EXPECT_EQ(EnvironmentValue({"PATHS=x", "PATH=a=b"}, "PATH"), "a=b");
  EXPECT_EQ(EnvironmentValue({"PATHS=x"}, "PATH"), "");
  EXPECT_EQ(EnvironmentValue({"PATH"}, "PATH"), "");
}

}  // namespace
}  // namespace trainctl
