// What the kernel's control groups add: limits, the reason of a kill, an end for what nobody is
// left to kill, and a word about what cannot be killed.
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "runtime/local/cgroup.h"
#include "runtime/local/shim_files.h"
#include "tests/process/shim_fixture.h"

namespace trainctl::testing {
namespace {

using frame::EpochGone;
using frame::EpochStarted;
using frame::StopEpoch;
using frame::Unkillable;
using frame::WorkerExited;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class ShimContainment : public Shim {
 protected:
  // False and skipped where this user may make no cgroup.
  bool MayMakeCgroups() {
    const CgroupFolders own = OwnCgroupFolders();
    return !own.unified.empty() && ::access(own.unified.c_str(), W_OK) == 0;
  }
  // A worker with descendants that try to get away, all of them running.
  void StartEscaper(Peer& daemon) {
    daemon.AskForOutput(0, 1);
    daemon.Send(Scripts(0, {kEscaper}));
    while (daemon.OutputOf(0, 1) != "escaped\n") ASSERT_TRUE(daemon.Next().has_value());
  }
};

TEST_F(ShimContainment, TheCgroupOfAJobIsGoneWithIt) {
  if (!MayMakeCgroups()) GTEST_SKIP() << "skipped, because no cgroup can be made here";
  StartShim(1);
  Peer daemon = ConnectDaemon();
  StartEscaper(daemon);
  const std::string mark = CgroupMark(socket_);
  const std::string cgroup = std::filesystem::read_symlink(mark);
  EXPECT_THAT(cgroup, HasSubstr("trainctl-"));
  daemon.Send(StopEpoch{1, 0, 0});
  daemon.Await<EpochGone>();
  daemon.Send(frame::Release{});
  EXPECT_EQ(WaitForShimExit(), 0);
  EXPECT_NE(::access(cgroup.c_str(), F_OK), 0);
  EXPECT_FALSE(std::filesystem::is_symlink(mark));
}

// Nobody is left who knows the workers: the mark leads to them.
TEST_F(ShimContainment, AfterTheEndOfKeeperAndSupervisorAtOnceASweepFindsAll) {
  if (!MayMakeCgroups()) GTEST_SKIP() << "skipped, because no cgroup can be made here";
  StartShim(1);
  Peer daemon = ConnectDaemon();
  StartEscaper(daemon);
  const pid_t supervisor = FindSupervisor();
  // Neither may see the other's end before its own.
  ::kill(keeper_, SIGSTOP);
  ::kill(supervisor, SIGSTOP);
  ::kill(supervisor, SIGKILL);
  ::kill(keeper_, SIGKILL);
  EXPECT_EQ(WaitForShimExit(), -1);
  EXPECT_GE(MarkedProcesses().size(), 3u);
  EXPECT_EQ(SweepMarkedCgroup(CgroupMark(socket_), kDeadline), absl::OkStatus());
  EXPECT_THAT(MarkedProcesses(), ElementsAre());
  EXPECT_EQ(SweepMarkedCgroup(CgroupMark(socket_), kDeadline), absl::OkStatus());  // nothing left
}

TEST_F(ShimContainment, WhoIsKilledForMemoryIsKnown) {
  if (!MayMakeCgroups()) GTEST_SKIP() << "skipped, because no cgroup can be made here";
  StartShim(2);
  Peer daemon = ConnectDaemon();
  frame::StartEpoch start = Scripts(0, {"", kForever});
  start.workers[0].argv = {"python3", "-c", "x = bytearray(300_000_000)"};
  start.memory_limit = 100 << 20;
  daemon.Send(start);
  const auto exited = daemon.Await<WorkerExited>();
  if (exited.exit.kind == frame::Exit::Kind::kSpawnFailed) {
    GTEST_SKIP() << "skipped, because memory cannot be limited here: " << exited.exit.message;
  }
  EXPECT_EQ(exited.rank, 0);
  EXPECT_EQ(exited.exit.code, SIGKILL);
  EXPECT_FALSE(exited.exit.by_us);
  EXPECT_THAT(exited.exit.message, HasSubstr("ut of memory"));
  daemon.Send(StopEpoch{1, 0, 0});
  EXPECT_EQ(daemon.Await<WorkerExited>().exit.message, "the coordinator stopped it");
  daemon.Await<EpochGone>();
}

TEST_F(ShimContainment, ALimitOfProcessesHoldsForAllTogether) {
  if (!MayMakeCgroups()) GTEST_SKIP() << "skipped, because no cgroup can be made here";
  StartShim(1);
  Peer daemon = ConnectDaemon();
  daemon.AskForOutput(0, 1);
  frame::StartEpoch start =
      Scripts(0, {"for i in 1 2 3 4 5 6 7 8 9; do sleep 1000 & done; echo all"});
  start.process_limit = 5;
  daemon.Send(start);
  const auto exited = daemon.Await<WorkerExited>();
  if (exited.exit.kind == frame::Exit::Kind::kSpawnFailed) {
    GTEST_SKIP() << "skipped, because processes cannot be limited here: " << exited.exit.message;
  }
  EXPECT_THAT(exited.output_tail, HasSubstr("fork"));
  daemon.Await<EpochGone>();
  EXPECT_EQ(daemon.OutputOf(0, 1), "");
}

// A process in a frozen cgroup of version 1 cannot end, like one that waits for a dead device.
class Freezer {
 public:
  explicit Freezer(pid_t pid) {
    if (::mkdir(folder_.c_str(), 0755) < 0) return;
    std::ofstream(folder_ + "/cgroup.procs") << pid;
    std::ofstream state(folder_ + "/freezer.state");
    works_ = static_cast<bool>(state << "FROZEN" << std::flush);
  }
  ~Freezer() {
    Thaw();
    WaitUntil([this] { return ::rmdir(folder_.c_str()) == 0 || errno == ENOENT; }, "the thaw");
  }
  void Thaw() { std::ofstream(folder_ + "/freezer.state") << "THAWED"; }
  bool works() const { return works_; }

 private:
  std::string folder_ = absl::StrCat("/sys/fs/cgroup/freezer/trainctl-test.", ::getpid());
  bool works_ = false;
};

TEST_F(ShimContainment, WhatCannotBeKilledIsNamed) {
  StartShim(1);
  Peer daemon = ConnectDaemon();
  daemon.Send(Scripts(0, {"exec sleep 1000"}));
  const pid_t pid = daemon.Await<EpochStarted>().slots[0].pid;
  AwaitSleep(pid);
  Freezer freezer(pid);
  if (!freezer.works()) GTEST_SKIP() << "skipped, because nothing can be frozen here";
  daemon.Send(StopEpoch{1, 0, 0});
  const auto told = daemon.Await<Unkillable>();
  EXPECT_EQ(told.epoch, 0);
  EXPECT_THAT(told.which, HasSubstr(absl::StrCat("pid ", pid, " (sleep), state ")));
  Peer next = ConnectDaemon(2);
  EXPECT_EQ(next.Await<frame::ShimState>().unkillable, told.which);
  freezer.Thaw();
  next.Await<EpochGone>();
}

}  // namespace
}  // namespace trainctl::testing
