// A worker that makes no progress is noticed, and what it is at is written down before it gets a
// signal.
#include <signal.h>
#include <unistd.h>

#include <string>

#include "gmock/gmock.h"
#include "runtime/base/file.h"
#include "tests/process/shim_fixture.h"

namespace trainctl::testing {
namespace {

using frame::DiagnoseWorkers;
using frame::EpochStarted;
using frame::HangSuspected;
using frame::StopEpoch;
using frame::WorkerExited;
using frame::WorkersDiagnosed;
using ::testing::HasSubstr;

std::string ReadAll(const std::string& path) { return ReadFile(path).value_or(""); }

TEST_F(Shim, ASilentIdleScriptIsSuspectedIfThatWasAskedFor) {
  StartShim(2);
  Peer daemon = ConnectDaemon();
  frame::StartEpoch start =
      Scripts(0, {"while :; do echo alive; sleep 0.1; done", "exec sleep 1000"});
  start.hang_timeout_ns = Duration(seconds(1)).count();
  daemon.Send(start);
  const auto suspected = daemon.Await<HangSuspected>();
  EXPECT_EQ(suspected.rank, 1);
  EXPECT_THAT(suspected.reason, HasSubstr("has printed nothing and used no processor for"));
}

TEST_F(Shim, WhatWorkersAreAtIsWrittenDown) {
  StartShim(2);
  Peer daemon = ConnectDaemon();
  daemon.Send(Scripts(0, {"sleep 1000 & wait", "exec sleep 1000"}));
  for (const frame::SlotState& slot : daemon.Await<EpochStarted>().slots) AwaitSleep(slot.pid);
  daemon.Send(DiagnoseWorkers{0});
  const auto told = daemon.Await<WorkersDiagnosed>();
  ASSERT_EQ(told.ranks.size(), 2u);
  EXPECT_EQ(told.ranks[1].rank, 1);
  EXPECT_FALSE(told.ranks[1].stopped);
  const std::string text = ReadAll(LogPath(0, 0, "hang.txt"));
  EXPECT_THAT(text, HasSubstr("page: nothing written"));
  EXPECT_THAT(text, HasSubstr("(sh), state S"));
  EXPECT_THAT(text, HasSubstr("(sleep), state S"));  // what it started, too
  const bool has_gdb = ::access("/usr/bin/gdb", X_OK) == 0;
  EXPECT_THAT(text, HasSubstr(has_gdb ? "Thread 1" : "page:"));
}

TEST_F(Shim, AStoppedWorkerIsSuspected) {
  StartShim(1);
  Peer daemon = ConnectDaemon();
  frame::StartEpoch start = Scripts(0, {"while :; do echo alive; sleep 0.1; done"});
  start.hang_timeout_ns = Duration(seconds(1)).count();
  daemon.Send(start);
  ::kill(daemon.Await<EpochStarted>().slots[0].pid, SIGSTOP);
  EXPECT_THAT(daemon.Await<HangSuspected>().reason, HasSubstr("stopped by a signal"));
  daemon.Send(DiagnoseWorkers{0});
  EXPECT_TRUE(daemon.Await<WorkersDiagnosed>().ranks[0].stopped);
}

TEST_F(Shim, AHungPythonProgramSaysWhereItIs) {
  StartShim(1);
  Peer daemon = ConnectDaemon();
  daemon.AskForOutput(0, 1);
  frame::StartEpoch start = Scripts(0, {""});
  start.env.push_back("PYTHONFAULTHANDLER=1");
  start.workers[0].argv = {"python3", "-uc",
                           "import time\ndef waits_for_ever():\n  print('in')\n  time.sleep(1000)\n"
                           "waits_for_ever()"};
  daemon.Send(start);
  while (daemon.OutputOf(0, 1) != "in\n") ASSERT_TRUE(daemon.Next().has_value());
  daemon.Send(StopEpoch{1, 0, Duration(seconds(10)).count(), true});
  const auto exited = daemon.Await<WorkerExited>();
  EXPECT_TRUE(exited.exit.by_us);
  EXPECT_THAT(exited.output_tail, HasSubstr("in waits_for_ever"));
}

}  // namespace
}  // namespace trainctl::testing
