#include "runtime/local/cgroup.h"

#include "gtest/gtest.h"

namespace trainctl {
namespace {

// Shapes of the two files as proc(5) and cgroups(7) give them.
constexpr char kUnified[] =
    "22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n"
    "30 22 0:26 / /sys/fs/cgroup rw,nosuid,nodev,noexec shared:9 - cgroup2 cgroup2 rw,nsdelegate\n";
constexpr char kHybrid[] =
    "30 22 0:26 / /sys/fs/cgroup ro - tmpfs tmpfs ro,mode=755\n"
    "31 30 0:27 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"
    "33 30 0:29 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
    "34 30 0:30 / /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids\n"
    "35 30 0:31 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n";

TEST(Cgroup, AHostWithVersion2OnlyHasAllInOnePlace) {
  const CgroupFolders folders = ParseCgroupFolders(kUnified, "0::/system.slice/traind.service\n");
  EXPECT_EQ(folders.unified, "/sys/fs/cgroup/system.slice/traind.service");
  EXPECT_EQ(folders.memory, "");
  EXPECT_EQ(folders.pids, "");
}

TEST(Cgroup, OnAHybridHostLimitsAreThoseOfVersion1) {
  const CgroupFolders folders =
      ParseCgroupFolders(kHybrid, "8:pids:/\n4:memory:/user.slice\n1:name=systemd:/x\n0::/a/b\n");
  EXPECT_EQ(folders.unified, "/sys/fs/cgroup/unified/a/b");
  EXPECT_EQ(folders.memory, "/sys/fs/cgroup/memory/user.slice");
  EXPECT_EQ(folders.pids, "/sys/fs/cgroup/pids");
}

TEST(Cgroup, AMountOfAPartShowsOnlyGroupsOfThatPart) {
  const std::string part = "31 30 0:27 /docker/17 /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";
  EXPECT_EQ(ParseCgroupFolders(part, "0::/docker/17/job\n").unified, "/sys/fs/cgroup/job");
  EXPECT_EQ(ParseCgroupFolders(part, "0::/docker/17\n").unified, "/sys/fs/cgroup");
  EXPECT_EQ(ParseCgroupFolders(part, "0::/docker/170\n").unified, "");
  EXPECT_EQ(ParseCgroupFolders(kUnified, "0::/../other\n").unified, "");
}

TEST(Cgroup, TextsThatAreNoneGiveNothing) {
  for (const char* text :
       {"", "\n\n", " - ", "a b c - cgroup2", "0::", "::::", "31 30 - cgroup2 x"}) {
    const CgroupFolders folders = ParseCgroupFolders(text, text);
    EXPECT_EQ(folders.unified + folders.memory + folders.pids, "") << text;
  }
}

}  // namespace
}  // namespace trainctl
