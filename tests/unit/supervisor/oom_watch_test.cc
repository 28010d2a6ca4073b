#include "runtime/supervisor/oom_watch.h"

#include <fstream>

#include "gmock/gmock.h"
#include "tests/unit/scratch.h"

namespace trainctl {
namespace {

using ::testing::HasSubstr;
using ::testing::Optional;

TEST(OomWatch, ReadsTheProcessFromTheKernelsLog) {
  EXPECT_THAT(PidKilledForMemory("Memory cgroup out of memory: Killed process 812 (python3) "
                                 "total-vm:8388608kB, anon-rss:4194304kB"),
              Optional(812));
  EXPECT_THAT(PidKilledForMemory("Out of memory: Killed process 7 (a) total-vm:1kB"), Optional(7));
  for (const char* line :
       {"", "Killed process 812 (x)", "Out of memory: Killed process",
        "Out of memory: Killed process x", "Out of memory: Killed process 99999999999999"}) {
    EXPECT_EQ(PidKilledForMemory(line), std::nullopt) << line;
  }
}

TEST(OomWatch, ReadsTheCountOfACgroup) {
  EXPECT_THAT(OomKills("low 0\nhigh 0\nmax 9\noom 2\noom_kill 3\noom_group_kill 0\n"), Optional(3));
  EXPECT_THAT(OomKills("oom_kill_disable 0\nunder_oom 0\noom_kill 12\n"), Optional(12));
  EXPECT_EQ(OomKills("oom_kill\noom_kill x\n"), std::nullopt);
}

TEST(OomWatch, EachCountIsEvidenceForOneProcess) {
  const Scratch scratch;
  const std::string counter = scratch.path() + "/memory.events";
  std::ofstream(counter) << "oom_kill 1\n";
  OomWatch watch({counter});
  EXPECT_EQ(watch.Evidence(1), "");  // from before
  std::ofstream(counter) << "oom_kill 2\n";
  EXPECT_THAT(watch.Evidence(1), HasSubstr(counter));
  EXPECT_EQ(watch.Evidence(2), "");
}

}  // namespace
}  // namespace trainctl
