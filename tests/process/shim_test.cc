// The life of workers under a real train-shim.
#include <fcntl.h>
#include <signal.h>
#include <sys/fanotify.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "runtime/base/file.h"
#include "runtime/local/page.h"
#include "tests/process/shim_fixture.h"

namespace trainctl::testing {
namespace {

using frame::EpochGone;
using frame::EpochStarted;
using frame::Exit;
using frame::LeaseAnswer;
using frame::LeaseRequest;
using frame::ShimState;
using frame::StopEpoch;
using frame::WorkerExited;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST_F(Shim, SaysItsFullStateToANewDaemon) {
  StartShim(2);
  Peer daemon = ConnectDaemon();
  const auto state = daemon.Await<ShimState>();
  EXPECT_EQ(state.job_id, "test");
  EXPECT_EQ(state.epoch, -1);
  EXPECT_TRUE(state.gone);
  EXPECT_NE(state.reserved_port, 0);
  EXPECT_TRUE(state.slots.empty());
}

TEST_F(Shim, ReportsExitCodesAndSignals) {
  StartShim(3);
  Peer daemon = ConnectDaemon();
  daemon.Send(Scripts(0, {"exit 7", "kill -SEGV $$", "exit 0"}));
  const auto started = daemon.Await<EpochStarted>();
  EXPECT_EQ(started.slots.size(), 3u);
  std::vector<WorkerExited> exits(3);
  for (int i = 0; i < 3; ++i) {
    const auto exited = daemon.Await<WorkerExited>();
    exits[static_cast<size_t>(exited.rank)] = exited;
  }
  EXPECT_EQ(exits[0].exit.kind, Exit::Kind::kExited);
  EXPECT_EQ(exits[0].exit.code, 7);
  EXPECT_FALSE(exits[0].exit.by_us);
  EXPECT_GT(exits[0].exit_ns, 0);
  EXPECT_EQ(exits[1].exit.kind, Exit::Kind::kSignaled);
  EXPECT_EQ(exits[1].exit.code, SIGSEGV);
  EXPECT_FALSE(exits[1].exit.by_us);
  EXPECT_EQ(exits[2].exit.code, 0);
  EXPECT_EQ(daemon.Await<EpochGone>().epoch, 0);
}

TEST_F(Shim, OneWorkersOwnEndLeavesTheOthersRunning) {
  StartShim(2);
  Peer daemon = ConnectDaemon();
  daemon.Send(Scripts(0, {"exit 0", kForever}));
  EXPECT_EQ(daemon.Await<WorkerExited>().rank, 0);
  daemon.Send(StopEpoch{1, 0, 0});
  const auto second = daemon.Await<WorkerExited>();
  EXPECT_EQ(second.rank, 1);
  EXPECT_TRUE(second.exit.by_us);
  daemon.Await<EpochGone>();
}

// Every exec of a file hangs, as on a dead file server, while this lives.
class HangingExec {
 public:
  explicit HangingExec(const std::string& path)
      : fd_(::fanotify_init(FAN_CLASS_CONTENT | FAN_CLOEXEC, O_RDONLY)) {
    works_ = fd_.valid() && ::fanotify_mark(fd_.get(), FAN_MARK_ADD, FAN_OPEN_EXEC_PERM, AT_FDCWD,
                                            path.c_str()) == 0;
  }
  bool works() const { return works_; }

 private:
  Fd fd_;
  bool works_ = false;
};

TEST_F(Shim, AnExecThatHangsHangsNobodyElse) {
  StartShim(2, "1s");
  const std::string program = folder_ + "/hangs";
  std::filesystem::copy("/bin/true", program);
  const HangingExec hanging(program);
  if (!hanging.works()) GTEST_SKIP() << "skipped, because fanotify needs root";
  Peer daemon = ConnectDaemon();
  frame::StartEpoch start = Scripts(0, {"", "echo done; exit 3"});
  start.workers[0].argv = {program};
  daemon.Send(start);
  const auto request = daemon.Await<frame::LeaseRequest>();
  daemon.Send(frame::LeaseAnswer{request.request_id, 1, true, Duration(seconds(60)).count()});
  EXPECT_THAT(daemon.Await<frame::Note>().text, HasSubstr("file server"));
  EXPECT_EQ(daemon.Await<EpochStarted>().slots.size(), 2u);
  const auto exited = daemon.Await<WorkerExited>();
  EXPECT_EQ(exited.rank, 1);
  EXPECT_EQ(exited.exit.code, 3);
  daemon.Send(StopEpoch{1, 0, 0});
  EXPECT_EQ(daemon.Await<WorkerExited>().rank, 0);
  daemon.Await<EpochGone>();
}

TEST_F(Shim, ReportsWhyAProgramCouldNotBeStarted) {
  StartShim(4);
  Peer daemon = ConnectDaemon();
  std::ofstream(folder_ + "/plain") << "text";
  std::ofstream(folder_ + "/script") << "#!/no/such/interpreter\n";
  std::filesystem::permissions(folder_ + "/script", std::filesystem::perms::all);
  frame::StartEpoch start = Scripts(0, {"", "", "", ""});
  start.workers[0].argv = {folder_ + "/plain"};
  start.workers[1].argv = {"no-such-program"};
  start.workers[2].argv = {folder_ + "/script"};
  start.workers[3].argv = {};
  daemon.Send(start);
  std::vector<WorkerExited> exits(4);
  for (int i = 0; i < 4; ++i) {
    const auto exited = daemon.Await<WorkerExited>();
    exits[static_cast<size_t>(exited.rank)] = exited;
  }
  for (const WorkerExited& e : exits) EXPECT_EQ(e.exit.kind, Exit::Kind::kSpawnFailed);
  EXPECT_EQ(exits[0].exit.message,
            absl::StrCat("start worker rank 0: execute ", folder_, "/plain: Permission denied"));
  EXPECT_EQ(exits[0].exit.code, EACCES);
  EXPECT_THAT(exits[1].exit.message, HasSubstr("execute no-such-program: No such file"));
  EXPECT_THAT(exits[1].exit.message, HasSubstr("PATH"));
  EXPECT_THAT(exits[2].exit.message, HasSubstr("interpreter"));
  EXPECT_THAT(exits[3].exit.message, HasSubstr("the command is empty"));
  daemon.Await<EpochGone>();
}

TEST_F(Shim, RefusesMoreWorkersThanSlotsAndAMissingFolder) {
  StartShim(1);
  Peer daemon = ConnectDaemon();
  frame::StartEpoch start = Scripts(0, {"exit 0", "exit 0"});
  start.cwd = "/no/such/folder";
  daemon.Send(start);
  std::vector<std::string> messages(2);
  for (int i = 0; i < 2; ++i) {
    const auto exited = daemon.Await<WorkerExited>();
    messages[static_cast<size_t>(exited.rank)] = exited.exit.message;
  }
  EXPECT_THAT(messages[0], HasSubstr("change folder to /no/such/folder: No such file"));
  EXPECT_THAT(messages[1], HasSubstr("only 1 slots"));
}

TEST_F(Shim, GivesAWorkerACleanProcess) {
  StartShim(1);
  Peer daemon = ConnectDaemon();
  daemon.AskForOutput(0, 2);
  frame::StartEpoch start =
      Scripts(0, {"ls /proc/self/fd | wc -l; grep -E 'SigBlk|SigIgn' /proc/self/status; readlink "
                  "/proc/self/fd/0; ps -o sid=,pgid= -p $$ | tr -d '\\n'; echo; echo $$; pwd; "
                  "ulimit -n; env"});
  start.env.push_back("OVER=common");
  start.workers[0].env = {"OVER=own", "MORE=1"};
  daemon.Send(start);
  daemon.Await<WorkerExited>();
  daemon.Await<EpochGone>();
  const std::string output = daemon.OutputOf(0, 1);
  EXPECT_THAT(output, ::testing::StartsWith("4\n"));  // 0, 1, 2 and the one that ls itself opens
  EXPECT_THAT(output, HasSubstr("SigBlk:\t0000000000000000\nSigIgn:\t0000000000000000\n"));
  EXPECT_THAT(output, HasSubstr("/dev/null\n"));
  EXPECT_THAT(output, HasSubstr(folder_ + "\n"));
  EXPECT_THAT(output, HasSubstr("OVER=own\n"));
  EXPECT_THAT(output, ::testing::Not(HasSubstr("OVER=common")));
  EXPECT_THAT(output, HasSubstr("MORE=1\n"));
  EXPECT_THAT(output, HasSubstr(absl::StrCat("TRAINCTL_PAGE=/proc/", keeper_, "/fd/")));
  EXPECT_THAT(output, HasSubstr("TRAINCTL_SOCKET=" + socket_));
  EXPECT_THAT(output, HasSubstr("TORCHELASTIC_ERROR_FILE=" + LogPath(0, 0, "error.json")));
  EXPECT_THAT(output, ::testing::Not(HasSubstr("TRAINCTL_LOG")));  // nothing is inherited
}

TEST_F(Shim, GivesTheTailOfStderrAndErrorJsonWithTheExit) {
  StartShim(1);
  Peer daemon = ConnectDaemon();
  daemon.Send(Scripts(0, {"i=0; while [ $i -lt 30 ]; do i=$((i+1)); echo line $i >&2; done; "
                          "echo '{\"message\": \"boom\"}' > $TORCHELASTIC_ERROR_FILE; exit 1"}));
  const auto exited = daemon.Await<WorkerExited>();
  EXPECT_THAT(exited.output_tail, ::testing::StartsWith("line 11\n"));
  EXPECT_THAT(exited.output_tail, ::testing::EndsWith("line 30\n"));
  EXPECT_EQ(exited.error_json, "{\"message\": \"boom\"}\n");
  daemon.Await<EpochGone>();
}

TEST_F(Shim, AnErrorFileThatIsAFifoDoesNotBlock) {
  StartShim(1);
  Peer daemon = ConnectDaemon();
  daemon.Send(Scripts(0, {"mkfifo $TORCHELASTIC_ERROR_FILE; exit 1"}));
  EXPECT_EQ(daemon.Await<WorkerExited>().error_json, "");
  daemon.Await<EpochGone>();
}

TEST_F(Shim, AWorkerDeafToSigtermIsKilledAfterItsGrace) {
  StartShim(2);
  Peer daemon = ConnectDaemon();
  daemon.AskForOutput(0, 2);
  daemon.Send(Scripts(
      0, {std::string("trap '' TERM; echo ready; ") + kForever,
          std::string("trap 'exit 0' TERM; echo ready; ") + "while :; do sleep 0.01; done"}));
  while (daemon.OutputOf(0, 1).empty() || daemon.OutputOf(1, 1).empty()) daemon.Next();
  daemon.Send(StopEpoch{1, 0, Duration(milliseconds(200)).count()});
  const auto first = daemon.Await<WorkerExited>();
  EXPECT_EQ(first.rank, 1);
  EXPECT_EQ(first.exit.kind, Exit::Kind::kExited);
  EXPECT_TRUE(first.exit.by_us);
  const auto second = daemon.Await<WorkerExited>();
  EXPECT_EQ(second.exit.code, SIGKILL);
  EXPECT_TRUE(second.exit.by_us);
  daemon.Await<EpochGone>();
}

TEST_F(Shim, ASecondStopShortensTheGrace) {
  StartShim(1);
  Peer daemon = ConnectDaemon();
  daemon.AskForOutput(0, 2);
  daemon.Send(Scripts(0, {std::string("trap '' TERM; echo ready; ") + kForever}));
  while (daemon.OutputOf(0, 1).empty()) daemon.Next();
  daemon.Send(StopEpoch{1, 0, Duration(seconds(3600)).count()});
  daemon.Send(StopEpoch{1, 0, Duration(milliseconds(50)).count()});
  EXPECT_EQ(daemon.Await<WorkerExited>().exit.code, SIGKILL);
  daemon.Await<EpochGone>();
}

TEST_F(Shim, AStoppedWorkerIsWokenToEnd) {
  StartShim(1);
  Peer daemon = ConnectDaemon();
  daemon.AskForOutput(0, 2);
  daemon.Send(Scripts(0, {"echo ready; kill -STOP $$; exit 5"}));
  while (daemon.OutputOf(0, 1).empty()) daemon.Next();
  daemon.Send(StopEpoch{1, 0, Duration(seconds(3600)).count()});
  EXPECT_TRUE(daemon.Await<WorkerExited>().exit.by_us);
  daemon.Await<EpochGone>();
}

TEST_F(Shim, NoDescendantOutlivesItsEpoch) {
  StartShim(2);
  Peer daemon = ConnectDaemon();
  daemon.AskForOutput(0, 2);
  daemon.Send(Scripts(0, {kEscaper, kEscaper}));
  while (daemon.OutputOf(0, 1).find("escaped") == std::string::npos ||
         daemon.OutputOf(1, 1).find("escaped") == std::string::npos) {
    daemon.Next();
  }
  EXPECT_GE(MarkedProcesses().size(), 6u);
  daemon.Send(StopEpoch{1, 0, Duration(milliseconds(100)).count()});
  daemon.Await<EpochGone>();
  EXPECT_THAT(MarkedProcesses(), ElementsAre());
}

TEST_F(Shim, WhatFinishedWorkersLeftBehindIsEndedToo) {
  StartShim(1);
  Peer daemon = ConnectDaemon();
  daemon.Send(Scripts(0, {kEscape + "exit 0"}));
  EXPECT_EQ(daemon.Await<WorkerExited>().exit.code, 0);
  daemon.Await<EpochGone>();
  EXPECT_THAT(MarkedProcesses(), ElementsAre());
}

TEST_F(Shim, RefusesLowerTermsAndOldEpochs) {
  StartShim(1);
  Peer daemon = ConnectDaemon();
  frame::StartEpoch start = Scripts(3, {kForever});
  start.term = 5;
  daemon.Send(start);
  daemon.Await<EpochStarted>();
  daemon.Send(StopEpoch{4, 3, 0});  // an old coordinator
  frame::StartEpoch again = Scripts(3, {kForever});
  again.term = 5;
  daemon.Send(again);  // said twice: answered again, not started again
  const auto second = daemon.Await<EpochStarted>();
  EXPECT_TRUE(second.slots.at(0).running);
  frame::StartEpoch next = Scripts(4, {kForever});
  next.term = 5;
  daemon.Send(next);  // while epoch 3 lives
  const auto state = daemon.Await<ShimState>([](const ShimState& s) { return s.epoch == 3; });
  EXPECT_EQ(state.term, 5);
  EXPECT_FALSE(state.gone);
  daemon.Send(StopEpoch{6, 3, 0});
  daemon.Await<EpochGone>();
  daemon.confirms = false;
  daemon.Send(next);  // its term is now old
  daemon.confirms = true;
  frame::StartEpoch last = Scripts(5, {"exit 0"});
  last.term = 6;
  daemon.Send(last);
  EXPECT_EQ(daemon.Await<EpochStarted>().epoch, 5);
  daemon.Await<EpochGone>();
}

TEST_F(Shim, StartsNothingBeforeTheOrderIsConfirmed) {
  StartShim(1);
  Peer daemon = ConnectDaemon();
  daemon.confirms = false;
  const auto no_epoch = [](const ShimState& s) { return s.epoch == -1; };
  daemon.Await<ShimState>(no_epoch);
  daemon.Send(Scripts(0, {kForever}));
  daemon.Send(LeaseAnswer{daemon.Await<LeaseRequest>().request_id, 1, false, 0});
  daemon.Await<ShimState>(no_epoch);
  daemon.Send(Scripts(0, {kForever}));
  const uint64_t late = daemon.Await<LeaseRequest>().request_id;
  daemon.Send(StopEpoch{1, 0, 0});
  daemon.Await<ShimState>(no_epoch);
  daemon.Send(LeaseAnswer{late, 1, true, Duration(seconds(10)).count()});
  daemon.Send(Scripts(1, {"exit 0"}));
  const uint64_t asked = daemon.Await<LeaseRequest>().request_id;
  EXPECT_THAT(MarkedProcesses(), ElementsAre());
  daemon.Send(LeaseAnswer{asked, 1, true, Duration(seconds(10)).count()});
  EXPECT_EQ(daemon.Await<EpochStarted>().epoch, 1);
  daemon.Await<EpochGone>();
}

TEST_F(Shim, ShowsWorkersTheirPageAndTheDaemonTheirProgress) {
  StartShim(1);
  Peer daemon = ConnectDaemon();
  // The offsets are those of runtime/local/page.h.
  daemon.Send(Scripts(7, {"exec /usr/bin/python3 -c \"\n"
                          "import mmap, os, struct, time\n"
                          "f = os.open(os.environ['TRAINCTL_PAGE'], os.O_RDWR)\n"
                          "m = mmap.mmap(f, 0)\n"
                          "assert struct.unpack_from('<I', m, 0)[0] == 0x47505254\n"
                          "assert struct.unpack_from('<q', m, 88)[0] == 7\n"
                          "struct.pack_into('<d', m, 32, 0.25)\n"
                          "struct.pack_into('<Q', m, 8, 41)\n"
                          "while struct.unpack_from('<I', m, 96)[0] == 0: time.sleep(0.01)\n"
                          "struct.pack_into('<Q', m, 8, 42)\n\""}));
  const auto progress =
      daemon.Await<frame::Progress>([](const frame::Progress& p) { return p.step == 41; });
  EXPECT_EQ(progress.loss, 0.25);
  EXPECT_EQ(progress.epoch, 7);
  daemon.Send(frame::PageRequest{7, true, false});
  daemon.Await<frame::Progress>([](const frame::Progress& p) { return p.step == 42; });
  EXPECT_EQ(daemon.Await<WorkerExited>().exit.code, 0);
  daemon.Await<EpochGone>();
}

TEST_F(Shim, SignalsOnlyTheMainProcesses) {
  StartShim(1);
  Peer daemon = ConnectDaemon();
  daemon.AskForOutput(0, 2);
  daemon.Send(
      Scripts(0, {"trap 'echo got; exit 0' USR1; echo ready; while :; do sleep 0.01; done"}));
  while (daemon.OutputOf(0, 1).empty()) daemon.Next();
  daemon.Send(frame::SignalWorkers{0, SIGUSR1, {}});
  const auto exited = daemon.Await<WorkerExited>();
  EXPECT_EQ(exited.exit.code, 0);
  EXPECT_FALSE(exited.exit.by_us);
  daemon.Await<EpochGone>();
  EXPECT_EQ(daemon.OutputOf(0, 1), "ready\ngot\n");
}

TEST_F(Shim, ReleaseKillsAllAndRemovesTheSocket) {
  StartShim(1);
  Peer daemon = ConnectDaemon();
  daemon.AskForOutput(0, 2);
  daemon.Send(Scripts(0, {kEscaper}));
  while (daemon.OutputOf(0, 1).find("escaped") == std::string::npos) daemon.Next();
  daemon.Send(frame::Release{});
  EXPECT_TRUE(daemon.AwaitEnd());
  EXPECT_EQ(WaitForShimExit(), 0);
  EXPECT_THAT(MarkedProcesses(), ElementsAre());
  EXPECT_NE(::access(socket_.c_str(), F_OK), 0);
}

TEST_F(Shim, ASecondShimOnTheSameSocketIsRefused) {
  StartShim(1);
  Peer daemon = ConnectDaemon();
  daemon.Await<ShimState>();
  const pid_t first = keeper_;
  StartShim(1);
  EXPECT_EQ(WaitForShimExit(), 1);
  keeper_ = first;
  daemon.Send(Scripts(0, {"exit 0"}));
  daemon.Await<EpochGone>();
}

}  // namespace
}  // namespace trainctl::testing
