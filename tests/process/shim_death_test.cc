// Whoever dies, stops or falls silent: nothing that a worker started is left.
#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "tests/process/shim_fixture.h"

namespace trainctl::testing {
namespace {

using frame::EpochGone;
using frame::EpochStarted;
using frame::LeaseAnswer;
using frame::LeaseRequest;
using frame::ShimState;
using frame::WorkerExited;
using ::testing::ElementsAre;

class ShimDeath : public Shim {
 protected:
  // Two workers, each with descendants that try to get away, all of them running.
  void StartEscapers(Peer& daemon) {
    daemon.AskForOutput(0, 2);
    daemon.Send(Scripts(0, {kEscaper, kEscaper}));
    while (daemon.OutputOf(0, 1) != "escaped\n" || daemon.OutputOf(1, 1) != "escaped\n") {
      if (!daemon.Next().has_value()) return;
    }
    EXPECT_GE(MarkedProcesses().size(), 6u);
  }
  void ExpectEnd(int status) {
    EXPECT_EQ(WaitForShimExit(), status);
    EXPECT_THAT(MarkedProcesses(), ElementsAre());
    EXPECT_NE(::access(socket_.c_str(), F_OK), 0);
  }
};

TEST_F(ShimDeath, WithoutAnAnswerTheLeaseEndsAndAllAreKilled) {
  StartShim(2, "1s");
  Peer daemon = ConnectDaemon();
  StartEscapers(daemon);
  EXPECT_TRUE(daemon.AwaitEnd());
  ExpectEnd(3);
}

TEST_F(ShimDeath, WithoutADaemonTheLeaseEndsToo) {
  StartShim(2, "1s");
  Peer daemon = ConnectDaemon();
  StartEscapers(daemon);
  daemon.Close();
  ExpectEnd(3);
}

TEST_F(ShimDeath, AnsweredRequestsKeepTheWorkersAlive) {
  StartShim(1, "600ms");
  Peer daemon = ConnectDaemon();
  daemon.Send(Scripts(0, {kForever}));
  // Nine thirds of a lease: three leases' time.
  for (int i = 0; i < 9; ++i) {
    const auto request = daemon.Await<LeaseRequest>();
    daemon.Send(LeaseAnswer{request.request_id, 1, true, Duration(seconds(5)).count()});
  }
  EXPECT_EQ(MarkedProcesses().empty(), false);
  daemon.Send(frame::StopEpoch{1, 0, 0});
  daemon.Await<EpochGone>();
  Peer again = ConnectDaemon(2);  // the shim itself lives on
  EXPECT_TRUE(again.Await<ShimState>().gone);
}

TEST_F(ShimDeath, ARefusedLeaseKillsTheWorkersAtOnce) {
  StartShim(1);
  Peer daemon = ConnectDaemon();
  daemon.Send(Scripts(0, {kForever}));
  daemon.Await<EpochStarted>();
  const auto request = daemon.Await<LeaseRequest>();
  daemon.Send(LeaseAnswer{request.request_id, 0, false, 0});  // of a lower term: ignored
  daemon.Send(LeaseAnswer{request.request_id, 1, false, 0});
  EXPECT_EQ(daemon.Await<WorkerExited>().exit.code, SIGKILL);
  daemon.Await<EpochGone>();
}

TEST_F(ShimDeath, AKilledKeeperTakesAllWithIt) {
  StartShim(2);
  Peer daemon = ConnectDaemon();
  StartEscapers(daemon);
  ::kill(keeper_, SIGKILL);
  EXPECT_TRUE(daemon.AwaitEnd());
  EXPECT_EQ(WaitForShimExit(), -1);
  EXPECT_THAT(MarkedProcesses(), ElementsAre());
  WaitUntil([this] { return ::access(socket_.c_str(), F_OK) != 0; }, "the socket's removal");
}

TEST_F(ShimDeath, AKilledSupervisorTakesAllWithIt) {
  StartShim(2);
  Peer daemon = ConnectDaemon();
  StartEscapers(daemon);
  ::kill(FindSupervisor(), SIGKILL);
  ExpectEnd(1);
}

TEST_F(ShimDeath, AStoppedSupervisorIsKilledWhenItsLeaseEnds) {
  StartShim(2, "1s");
  Peer daemon = ConnectDaemon();
  StartEscapers(daemon);
  ::kill(FindSupervisor(), SIGSTOP);
  ExpectEnd(3);
}

TEST_F(ShimDeath, AStoppedKeeperCannotKeepWorkersAliveBeyondTheLease) {
  StartShim(2, "1s");
  Peer daemon = ConnectDaemon();
  StartEscapers(daemon);
  ::kill(keeper_, SIGSTOP);
  daemon.Await<EpochGone>();
  EXPECT_THAT(MarkedProcesses(), ElementsAre());
  ::kill(keeper_, SIGKILL);
  EXPECT_TRUE(daemon.AwaitEnd());
  WaitForShimExit();
}

TEST_F(ShimDeath, AStoppedSupervisorWakesWhenItsKeeperIsKilled) {
  StartShim(2);
  Peer daemon = ConnectDaemon();
  StartEscapers(daemon);
  ::kill(FindSupervisor(), SIGSTOP);
  ::kill(keeper_, SIGKILL);
  EXPECT_TRUE(daemon.AwaitEnd());
  WaitForShimExit();
  EXPECT_THAT(MarkedProcesses(), ElementsAre());
}

TEST_F(ShimDeath, SigtermToEitherEndsAllCleanlyOnceNoDaemonCommandsIt) {
  for (const bool to_keeper : {true, false}) {
    StartShim(2);
    Peer daemon = ConnectDaemon();
    StartEscapers(daemon);
    ::kill(to_keeper ? keeper_ : FindSupervisor(), SIGTERM);
    daemon.Close();
    ExpectEnd(0);
  }
}

TEST_F(ShimDeath, SigtermToAllLeavesTheWorkersTheirGrace) {
  StartShim(1);
  Peer daemon = ConnectDaemon();
  daemon.Send(
      Scripts(0, {"trap 'sleep 0.2; exit 7' TERM; echo ready; while :; do sleep 0.01; done"}));
  daemon.AskForOutput(0, 1);
  daemon.Await<frame::Output>();
  for (const pid_t pid : {keeper_, FindSupervisor()}) ::kill(pid, SIGTERM);
  daemon.Send(frame::StopEpoch{1, 0, Duration(seconds(30)).count()});
  EXPECT_EQ(daemon.Await<frame::WorkerExited>().exit.code, 7);
  daemon.Close();
  ExpectEnd(0);
}

TEST_F(ShimDeath, WithoutWorkersAndDaemonItEndsByItself) {
  StartShim(1, "1s");
  ExpectEnd(0);
}

TEST_F(ShimDeath, TwoJobsOfOneUserNeverTouchEachOther) {
  StartShim(1);
  Peer first = ConnectDaemon();
  first.Send(Scripts(0, {kForever}));
  const int pid = first.Await<EpochStarted>().slots.at(0).pid;
  const pid_t first_keeper = std::exchange(keeper_, 0);
  const std::string first_socket = std::exchange(socket_, socket_ + ".2");
  StartShim(1);
  Peer second = ConnectDaemon();
  second.Send(Scripts(0, {kForever}));
  second.Await<EpochStarted>();
  ::kill(FindSupervisor(), SIGKILL);
  EXPECT_EQ(WaitForShimExit(), 1);
  EXPECT_THAT(MarkedProcesses(), ::testing::Contains(pid));
  keeper_ = first_keeper;
  socket_ = first_socket;
  first.Send(frame::Release{});
  ExpectEnd(0);
}

TEST_F(ShimDeath, HoldsTheLocksItWasGivenForLifeAndNoLonger) {
  const std::string path = folder_ + "/lock";
  Fd lock(::open(path.c_str(), O_RDWR | O_CREAT, 0600));  // inherited on purpose
  ASSERT_EQ(::flock(lock.get(), LOCK_EX), 0);
  StartShim(1, "10s", {"--hold-fds", absl::StrCat(lock.get())});
  Peer daemon = ConnectDaemon();
  daemon.Await<ShimState>();
  lock.Close();
  Fd mine(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  EXPECT_NE(::flock(mine.get(), LOCK_EX | LOCK_NB), 0);
  daemon.Send(Scripts(0, {"exec sleep 1000"}));
  daemon.Await<EpochStarted>();
  daemon.Send(frame::Release{});
  ExpectEnd(0);
  EXPECT_EQ(::flock(mine.get(), LOCK_EX | LOCK_NB), 0);
}

TEST_F(ShimDeath, SpeaksAtOnceOnTheSocketItInherits) {
  int ends[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
  Fd far(ends[1]);
  ASSERT_EQ(::fcntl(ends[0], F_SETFD, FD_CLOEXEC), 0);
  StartShim(1, "10s", {"--daemon-fd", absl::StrCat(far.get())});
  far.Close();
  Peer daemon{Fd(ends[0])};
  daemon.Send(frame::Hello{frame::kFrameVersion, 1, -1});
  EXPECT_EQ(daemon.Await<ShimState>().job_id, "test");
  daemon.Send(frame::Release{});
  EXPECT_TRUE(daemon.AwaitEnd());
  ExpectEnd(0);
}

}  // namespace
}  // namespace trainctl::testing
