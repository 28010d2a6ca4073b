#include "runtime/node/job_scope.h"

#include "gtest/gtest.h"

namespace trainctl {
namespace {

TEST(ScopeName, IsTheJobsNameAsTheSocketHasIt) {
  EXPECT_EQ(ScopeName("/run/trainctl/mlp-a1b2.shim"), "trainctl-mlp-a1b2");
  EXPECT_EQ(ScopeName("/run/trainctl/night.2_b.0badcafe.shim"), "trainctl-night.2_b.0badcafe");
}

TEST(ScopeName, HasOnlyCharactersThatAUnitMayHave) {
  EXPECT_EQ(ScopeName("/tmp/trainctl-7/a b@c\\d%.shim"), "trainctl-a\\x20b\\x40c\\x5cd\\x25");
  EXPECT_EQ(ScopeName("/s/\xc3\xa9.shim"), "trainctl-\\xc3\\xa9");
}

}  // namespace
}  // namespace trainctl
