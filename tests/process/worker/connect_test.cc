// How ranks find each other: interface and shared memory.
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/base/fd.h"
#include "runtime/worker/network_interface.h"
#include "runtime/worker/shared_reduce.h"

namespace trainctl {
namespace {

using ::testing::HasSubstr;

TEST(NetworkInterface, TheUsersWordWinsThenOneNodeUsesLoopback) {
  ::setenv("GLOO_SOCKET_IFNAME", "eth7,eth8", 1);
  EXPECT_EQ(*ChooseInterface(/*one_node=*/true), "eth7");
  ::unsetenv("GLOO_SOCKET_IFNAME");
  EXPECT_EQ(*ChooseInterface(/*one_node=*/true), "lo");
}

TEST(NetworkInterface, SeveralNodesUseTheRouteToTheMaster) {
  ::unsetenv("GLOO_SOCKET_IFNAME");
  ::setenv("MASTER_ADDR", "127.0.0.1", 1);
  EXPECT_EQ(*ChooseInterface(/*one_node=*/false), "lo");
  ::unsetenv("MASTER_ADDR");
  EXPECT_EQ(ChooseInterface(/*one_node=*/false).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(SharedReduce, OpensWhatAnotherRankMade) {
  auto made = SharedReduce::Create(0, 2);
  ASSERT_TRUE(made.ok()) << made.status();
  EXPECT_TRUE(SharedReduce::Open((*made)->location(), 1, 2).ok());
}

TEST(SharedReduce, RefusesMemoryOfAnotherJob) {
  auto made = SharedReduce::Create(0, 2);
  ASSERT_TRUE(made.ok());
  const auto refused = [](const std::string& location, int ranks) {
    const absl::Status status = SharedReduce::Open(location, 1, ranks).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << location;
    return std::string(status.message());
  };
  const std::string path = (*made)->location().substr(0, (*made)->location().find(' '));
  EXPECT_THAT(refused(path + " 7", 2), HasSubstr("something else"));
  EXPECT_THAT(refused(path + " seven", 2), HasSubstr("no location"));
  EXPECT_THAT(refused((*made)->location(), 3), HasSubstr("something else"));
  EXPECT_THAT(refused("/proc/1/fd/999999 7", 2), HasSubstr("open"));
  EXPECT_THAT(refused("", 2), HasSubstr("no location"));
  Fd small(::memfd_create("other", MFD_CLOEXEC));
  EXPECT_THAT(refused(absl::StrCat("/proc/self/fd/", small.get(), " 7"), 2),
              HasSubstr("something else"));
}

}  // namespace
}  // namespace trainctl
