#include "launcher/suggest.h"

#include <gtest/gtest.h>

namespace trainctl {
namespace {

TEST(EditDistance, CountsSwapsOnce) {
  EXPECT_EQ(EditDistance("", "abc"), 3);
  EXPECT_EQ(EditDistance("lauch", "launch"), 1);
  EXPECT_EQ(EditDistance("statsu", "status"), 1);
  EXPECT_EQ(EditDistance("stop", "list"), 4);
}

TEST(Nearest, IsTheWordThatWasMeant) {
  const std::vector<std::string> verbs = {"launch", "list", "logs", "status", "stop"};
  EXPECT_EQ(Nearest("lanuch", verbs), "launch");
  EXPECT_EQ(Nearest("stat", verbs), "status");
  EXPECT_EQ(Nearest("xyzzy", verbs), "");
  EXPECT_EQ(Nearest(std::string(10'000, 'a'), verbs), "");
}

TEST(Nearest, FallsBackOnWordsThatBeginAlike) {
  const std::vector<std::string> flags = {"--name", "--nproc-per-node", "--node-rank"};
  EXPECT_EQ(Nearest("--nprocs", flags), "--nproc-per-node");
  EXPECT_EQ(Nearest("--nonsense", flags), "");
}

TEST(DidYouMean, IsSilentWithoutACandidate) {
  EXPECT_EQ(DidYouMean("--nam", {"--name"}), "; did you mean --name?");
  EXPECT_EQ(DidYouMean("qqqq", {"--name"}), "");
}

}  // namespace
}  // namespace trainctl
