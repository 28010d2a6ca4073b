#include "runtime/supervisor/options.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"

namespace trainctl {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

absl::StatusOr<ShimOptions> Parse(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "train-shim");
  std::vector<char*> argv;
  for (std::string& a : arguments) argv.push_back(a.data());
  return ParseShimOptions(static_cast<int>(argv.size()), argv.data());
}

const std::vector<std::string> kNeeded = {"--job",   "j", "--socket", "/s",
                                          "--slots", "2", "--folder", "/f"};
std::string ErrorWith(std::vector<std::string> more) {
  std::vector<std::string> all = kNeeded;
  all.insert(all.end(), more.begin(), more.end());
  return std::string(Parse(all).status().message());
}

TEST(ShimOptions, TakesEveryOption) {
  const auto options =
      Parse({"--job=j", "--socket=/s", "--slots", "8", "--folder", "/f", "--lease", "1500ms",
             "--daemon-fd", "5", "--scope-fd", "6", "--hold-fds", "7,8"});
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_EQ(options->job, "j");
  EXPECT_EQ(options->slots, 8);
  EXPECT_EQ(options->lease, milliseconds(1500));
  EXPECT_EQ(options->daemon_fd, 5);
  EXPECT_EQ(options->scope_fd, 6);
  EXPECT_THAT(options->hold_fds, ElementsAre(7, 8));
}

TEST(ShimOptions, SaysWhichOptionIsWrong) {
  EXPECT_EQ(ErrorWith({}), "");
  EXPECT_THAT(ErrorWith({"--slots", "0"}), HasSubstr("--slots is '0'"));
  EXPECT_THAT(ErrorWith({"--slots", "1000000"}), HasSubstr("--slots is '1000000'"));
  EXPECT_THAT(ErrorWith({"--lease", "soon"}), HasSubstr("--lease is 'soon'"));
  EXPECT_THAT(ErrorWith({"--lease", "1ns"}), HasSubstr("--lease"));
  EXPECT_THAT(ErrorWith({"--daemon-fd", "1"}), HasSubstr("--daemon-fd"));
  EXPECT_THAT(ErrorWith({"--hold-fds", "7,x"}), HasSubstr("'x'"));
  EXPECT_THAT(ErrorWith({"--socket", "relative"}), HasSubstr("absolute"));
  EXPECT_THAT(ErrorWith({"--colour", "red"}), HasSubstr("unknown option --colour"));
  EXPECT_THAT(ErrorWith({"--job"}), HasSubstr("--job needs a value"));
  EXPECT_THAT(ErrorWith({"stray"}), HasSubstr("'stray'"));
  EXPECT_THAT(std::string(Parse({}).status().message()), HasSubstr("--job is missing"));
}

}  // namespace
}  // namespace trainctl
