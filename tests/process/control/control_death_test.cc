// Any process may be killed at any instruction.
#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <map>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "gmock/gmock.h"
#include "runtime/base/clock.h"
#include "runtime/base/fd.h"
#include "runtime/base/file.h"
#include "runtime/local/cgroup.h"
#include "tests/process/control/control_fixture.h"

namespace trainctl::testing {
namespace {

using ::testing::HasSubstr;

// Writes its pid and then waits until the file `go` is there.
constexpr char kWorker[] =
    "echo $$ > pid.$TRAINCTL_EPOCH.$RANK.tmp; "
    "mv pid.$TRAINCTL_EPOCH.$RANK.tmp pid.$TRAINCTL_EPOCH.$RANK; echo epoch $TRAINCTL_EPOCH; "
    "while [ ! -e go ]; do sleep 0.01; done; echo last";

pid_t ParentOf(pid_t pid) {
  pid_t parent = 0;
  const std::string stat = ReadFile(absl::StrCat("/proc/", pid, "/stat")).value_or("");
  std::sscanf(stat.c_str() + stat.rfind(')') + 1, " %*c %d", &parent);
  return parent;
}

class ControlDeath : public Control {
 protected:
  pid_t Worker(int epoch, int rank) {
    const std::string path = File(absl::StrCat("pid.", epoch, ".", rank));
    pid_t pid = 0;
    WaitUntil(
        [&] {
          const auto text = ReadFile(path);
          return text.ok() && absl::SimpleAtoi(absl::StripSuffix(*text, "\n"), &pid);
        },
        path);
    return pid;
  }
  // The keeper and its child, the supervisor.
  std::pair<pid_t, pid_t> ShimOf(const StartedJob& job) {
    std::map<pid_t, pid_t> parents;
    for (const pid_t pid : ProcessesNaming(job.job_folder)) {
      const auto line = ReadFile(absl::StrCat("/proc/", pid, "/cmdline"));
      if (absl::StrContains(line.value_or(""), "train-shim")) parents[pid] = ParentOf(pid);
    }
    for (const auto& [pid, parent] : parents) {
      if (parents.count(parent) != 0) return {parent, pid};
    }
    ADD_FAILURE() << "no shim";
    return {};
  }
  void Go() { ASSERT_TRUE(WriteFileAtomically(File("go"), "").ok()); }
};

TEST_F(ControlDeath, ACoordinatorThatIsKilledComesBackAndTrainingGoesOn) {
  ASSERT_TRUE(StartDaemon().ok());
  const StartedJob job = Submit(Spec(kWorker));
  FrontEnd front(job.job_socket, {.output = true, .owner = true});
  const pid_t first = Worker(0, 0);
  const pid_t second = Worker(0, 1);
  const pid_t coordinator = ProcessOf("train-coordinator");
  ASSERT_NE(coordinator, 0);
  ASSERT_EQ(::kill(coordinator, SIGKILL), 0);
  front.Await([&](FrontEnd& f) { return f.State().view.term == Term(2); }, "the second term");
  EXPECT_NE(front.State().coordinator_pid, coordinator);
  EXPECT_TRUE(Alive(first) && Alive(second));
  Go();
  const auto ended = front.AwaitEnd();
  ASSERT_TRUE(ended.has_value()) << front.end_status();
  EXPECT_EQ(ended->outcome, "succeeded") << ended->reason;
  EXPECT_EQ(front.Output(0), "epoch 0\nlast\n");
  EXPECT_EQ(front.Output(1), "epoch 0\nlast\n");
  EXPECT_TRUE(AwaitDaemonEnd());
}

TEST_F(ControlDeath, ACoordinatorIsStartedAgainHoweverOftenItIsKilled) {
  ASSERT_TRUE(StartDaemon().ok());
  const StartedJob job = Submit(Spec(kWorker));
  FrontEnd front(job.job_socket, {.output = true, .owner = true});
  const pid_t first = Worker(0, 0);
  pid_t killed = 0;
  for (int i = 0; i < 8; ++i) {
    pid_t next = 0;
    ASSERT_TRUE(WaitUntil(
        [&] {
          next = ProcessOf("train-coordinator");
          return next != 0 && next != killed;
        },
        "another coordinator"));
    ASSERT_EQ(::kill(next, SIGKILL), 0);
    killed = next;
  }
  EXPECT_TRUE(Alive(first));
  Go();
  const auto ended = front.AwaitEnd();
  ASSERT_TRUE(ended.has_value()) << front.end_status();
  EXPECT_EQ(front.Output(0), "epoch 0\nlast\n");
  EXPECT_TRUE(AwaitDaemonEnd());
}

TEST_F(ControlDeath, ADaemonWaitsForTheCoordinatorThatTheLastOneStarted) {
  ASSERT_TRUE(StartDaemon({}).ok());
  const StartedJob job = Submit(Spec(kWorker));
  const pid_t first = Worker(0, 0);
  KillDaemon();
  ASSERT_EQ(::kill(ProcessOf("train-coordinator"), SIGKILL), 0);
  // What one that has just been started holds before it listens.
  Fd journal;
  WaitUntil(
      [&] {
        journal = Fd(::open(absl::StrCat(job.job_folder, "/journal").c_str(), O_RDWR | O_CLOEXEC));
        return ::flock(journal.get(), LOCK_EX | LOCK_NB) == 0;
      },
      "the journal");
  ASSERT_TRUE(StartDaemon({}).ok());
  const std::string log = absl::StrCat(job.job_folder, "/coordinator.log");
  WaitUntil([&] { return absl::StrContains(ReadFile(log).value_or(""), "is alive"); }, log);
  journal.Close();
  FrontEnd front(job.job_socket, {.output = true, .owner = true});
  front.Await([](FrontEnd& f) { return f.State().view.term == Term(2); }, "the second term");
  EXPECT_TRUE(Alive(first));
  Go();
  const auto ended = front.AwaitEnd();
  ASSERT_TRUE(ended.has_value()) << front.end_status();
  EXPECT_EQ(front.Output(0), "epoch 0\nlast\n");
}

TEST_F(ControlDeath, ADaemonWaitsForHalfAShimHoweverLongItTakesToEnd) {
  ASSERT_TRUE(StartDaemon({}).ok());
  JobSpec spec = Spec(kWorker);
  spec.max_restarts = 1;
  const StartedJob job = Submit(spec);
  FrontEnd front(job.job_socket, {.output = true, .owner = true});
  Worker(0, 0);
  ASSERT_TRUE(front.AwaitRunning());
  const auto [keeper, supervisor] = ShimOf(job);
  ASSERT_EQ(::kill(keeper, SIGSTOP), 0);
  ASSERT_EQ(::kill(supervisor, SIGKILL), 0);
  // Longer than the daemon waits before it believes that another one has the shim.
  const Instant until = Now() + milliseconds(400);
  WaitUntil([&] { return Now() > until; }, "time");
  ASSERT_EQ(::kill(keeper, SIGCONT), 0);
  Worker(1, 0);
  Go();
  const auto ended = front.AwaitEnd();
  ASSERT_TRUE(ended.has_value()) << front.end_status();
  EXPECT_EQ(ended->outcome, "succeeded") << ended->reason;
}

TEST_F(ControlDeath, ACoordinatorThatHangsIsReplacedBeforeTheLeaseEnds) {
  ASSERT_TRUE(StartDaemon().ok());
  JobSpec spec = Spec(kWorker);
  spec.lease = seconds(5);
  const StartedJob job = Submit(spec);
  FrontEnd front(job.job_socket, {.output = true, .owner = true});
  const pid_t first = Worker(0, 0);
  const pid_t second = Worker(0, 1);
  const pid_t coordinator = ProcessOf("train-coordinator");
  ASSERT_EQ(::kill(coordinator, SIGSTOP), 0);
  const absl::Status asked = JobClient(job.job_socket).Describe(milliseconds(100)).status();
  EXPECT_EQ(asked.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(asked.message()),
              HasSubstr(absl::StrCat("process ", coordinator, ", the coordinator")));
  front.Await([&](FrontEnd& f) { return f.State().view.term == Term(2); }, "the second term");
  EXPECT_FALSE(Alive(coordinator));
  Go();
  const auto ended = front.AwaitEnd();
  ASSERT_TRUE(ended.has_value()) << front.end_status();
  EXPECT_EQ(ended->outcome, "succeeded") << ended->reason;
  EXPECT_EQ(front.Output(0), "epoch 0\nlast\n") << "training stopped";
  EXPECT_FALSE(Alive(first) || Alive(second));
  EXPECT_TRUE(AwaitDaemonEnd());
}

TEST_F(ControlDeath, ACoordinatorThatHangsWhileNoWorkerRunsIsReplaced) {
  ASSERT_TRUE(StartDaemon().ok());
  JobSpec spec = Spec("true");
  spec.lease = seconds(1);
  spec.min_nodes = spec.max_nodes = 2;  // so that it waits
  const StartedJob job = Submit(spec);
  FrontEnd front(job.job_socket, {.output = false, .owner = true});
  front.Await([](FrontEnd& f) { return f.State().coordinator_pid != 0; }, "an answer");
  const int coordinator = front.State().coordinator_pid;
  ASSERT_EQ(::kill(coordinator, SIGSTOP), 0);
  front.Await([&](FrontEnd& f) { return f.State().coordinator_pid != coordinator; }, "another");
  EXPECT_TRUE(JobClient(job.job_socket).Stop({"the test", false, true}).ok());
  ASSERT_TRUE(front.AwaitEnd().has_value());
  EXPECT_TRUE(AwaitDaemonEnd());
}

TEST_F(ControlDeath, WhatHappenedWhileThereWasNoCoordinatorIsTold) {
  ASSERT_TRUE(StartDaemon().ok());
  JobSpec spec = Spec(kWorker);
  spec.max_restarts = 1;
  const StartedJob job = Submit(spec);
  FrontEnd front(job.job_socket, {.output = true, .owner = true});
  const pid_t worker = Worker(0, 1);
  Worker(0, 0);
  ASSERT_EQ(::kill(ProcessOf("train-coordinator"), SIGKILL), 0);
  ASSERT_EQ(::kill(worker, SIGKILL), 0);
  Worker(1, 0);
  Worker(1, 1);
  Go();
  const auto ended = front.AwaitEnd();
  ASSERT_TRUE(ended.has_value()) << front.end_status();
  EXPECT_EQ(ended->outcome, "succeeded") << ended->reason;
  EXPECT_TRUE(AwaitDaemonEnd());
}

TEST_F(ControlDeath, ADaemonThatIsKilledIsReplacedAndNothingIsLost) {
  ASSERT_TRUE(StartDaemon().ok());
  const StartedJob job = Submit(Spec(kWorker));
  FrontEnd front(job.job_socket, {.output = true, .owner = true});
  const pid_t first = Worker(0, 0);
  const pid_t second = Worker(0, 1);
  KillDaemon();
  EXPECT_TRUE(Alive(first) && Alive(second));
  ASSERT_TRUE(StartDaemon({"--private", "--adopt", job.job_id}).ok());
  Go();
  const auto ended = front.AwaitEnd();
  ASSERT_TRUE(ended.has_value()) << front.end_status();
  EXPECT_EQ(ended->outcome, "succeeded") << ended->reason;
  EXPECT_EQ(front.Output(0), "epoch 0\nlast\n");
  EXPECT_TRUE(AwaitDaemonEnd());
}

TEST_F(ControlDeath, OutputAndEndOfWorkersThatEndWhileThereIsNoDaemonAreNotLost) {
  ASSERT_TRUE(StartDaemon().ok());
  const StartedJob job = Submit(Spec(absl::StrCat(kWorker, "; echo last words >&2; exit 7")));
  FrontEnd front(job.job_socket, {.output = true, .owner = true});
  const pid_t first = Worker(0, 0);
  const pid_t second = Worker(0, 1);
  KillDaemon();
  Go();
  WaitUntil([&] { return !Alive(first) && !Alive(second); }, "the workers' end");
  ASSERT_TRUE(StartDaemon({"--private", "--adopt", job.job_id}).ok());
  const auto ended = front.AwaitEnd();
  ASSERT_TRUE(ended.has_value()) << front.end_status();
  EXPECT_EQ(ended->outcome, "failed") << ended->reason;
  EXPECT_THAT(ended->summary, HasSubstr("| last words"));
  for (const int rank : {0, 1}) {
    EXPECT_EQ(front.Output(rank), "epoch 0\nlast\n");
    EXPECT_EQ(front.Output(rank, 2), "last words\n");
  }
  EXPECT_TRUE(AwaitDaemonEnd());
}

TEST_F(ControlDeath, AUsersDaemonTakesOverItsOwnJobsWhenItComesBack) {
  ASSERT_TRUE(StartDaemon({}).ok());
  const StartedJob job = Submit(Spec(kWorker));
  FrontEnd front(job.job_socket, {.output = true, .owner = true});
  Worker(0, 0);
  Worker(0, 1);
  KillDaemon();
  ASSERT_TRUE(StartDaemon({}).ok());
  const auto described = NodeClient(daemon_socket_).Describe();
  ASSERT_TRUE(described.ok()) << described.status();
  EXPECT_THAT(described->jobs, ::testing::ElementsAre(job.job_id));
  Go();
  const auto ended = front.AwaitEnd();
  ASSERT_TRUE(ended.has_value()) << front.end_status();
  EXPECT_EQ(ended->outcome, "succeeded") << ended->reason;
  WaitUntil([&] { return NodeClient(daemon_socket_).Describe()->jobs.empty(); },
            "the daemon to be done with the job");
}

TEST_F(ControlDeath, CoordinatorAndDaemonKilledAtOnceComeBack) {
  ASSERT_TRUE(StartDaemon().ok());
  const StartedJob job = Submit(Spec(kWorker));
  FrontEnd front(job.job_socket, {.output = true, .owner = true});
  const pid_t first = Worker(0, 0);
  const pid_t second = Worker(0, 1);
  const pid_t coordinator = ProcessOf("train-coordinator");
  KillDaemon();
  ASSERT_EQ(::kill(coordinator, SIGKILL), 0);
  ASSERT_TRUE(StartDaemon({"--private", "--adopt", job.job_id}).ok());
  front.Await([&](FrontEnd& f) { return f.State().view.term == Term(2); }, "the second term");
  EXPECT_TRUE(Alive(first) && Alive(second));
  Go();
  const auto ended = front.AwaitEnd();
  ASSERT_TRUE(ended.has_value()) << front.end_status();
  EXPECT_EQ(ended->outcome, "succeeded") << ended->reason;
  EXPECT_TRUE(AwaitDaemonEnd());
}

enum class Half { kKeeper, kSupervisor, kBothAtOnce };
class ShimDeath : public ControlDeath, public ::testing::WithParamInterface<Half> {};

TEST_P(ShimDeath, StartsANewEpochOnANewShim) {
  const CgroupFolders own = OwnCgroupFolders();
  if (GetParam() == Half::kBothAtOnce &&
      (own.unified.empty() || ::access(own.unified.c_str(), W_OK) != 0)) {
    GTEST_SKIP() << "skipped, because no cgroup can be made here";
  }
  ASSERT_TRUE(StartDaemon().ok());
  const StartedJob job = Submit(Spec(kWorker));
  FrontEnd front(job.job_socket, {.output = true, .owner = true});
  const pid_t first = Worker(0, 0);
  const pid_t second = Worker(0, 1);
  ASSERT_TRUE(front.AwaitRunning());
  std::vector<pid_t> shims;
  for (const pid_t pid : ProcessesNaming(job.job_folder)) {
    const auto name = ReadFile(absl::StrCat("/proc/", pid, "/comm"));
    if (name.ok() && name->substr(0, 5) == "shim-") shims.push_back(pid);
  }
  ASSERT_EQ(shims.size(), 2u);
  std::sort(shims.begin(), shims.end());
  // Stopped first, so that neither sees the other's end.
  if (GetParam() == Half::kBothAtOnce) {
    for (const pid_t shim : shims) ASSERT_EQ(::kill(shim, SIGSTOP), 0);
  }
  if (GetParam() != Half::kKeeper) ::kill(shims[1], SIGKILL);
  if (GetParam() != Half::kSupervisor) ::kill(shims[0], SIGKILL);
  Worker(1, 0);
  Worker(1, 1);
  EXPECT_FALSE(Alive(first) || Alive(second));
  Go();
  const auto ended = front.AwaitEnd();
  ASSERT_TRUE(ended.has_value()) << front.end_status();
  EXPECT_EQ(ended->outcome, "succeeded") << ended->reason;
  EXPECT_THAT(front.Announcements(),
              ::testing::Contains(HasSubstr(GetParam() == Half::kKeeper
                                                ? "because the keeper that held it died"
                                                : "was lost with its supervisor")));
  EXPECT_TRUE(AwaitDaemonEnd());
}

INSTANTIATE_TEST_SUITE_P(Halves, ShimDeath,
                         ::testing::Values(Half::kKeeper, Half::kSupervisor, Half::kBothAtOnce),
                         [](const auto& info) {
                           return info.param == Half::kKeeper       ? "KeeperKilled"
                                  : info.param == Half::kSupervisor ? "SupervisorKilled"
                                                                    : "BothKilledAtOnce";
                         });

TEST_F(ControlDeath, NothingIsLeftAfterTheLeaseWhenEverythingElseIsKilled) {
  ASSERT_TRUE(StartDaemon().ok());
  JobSpec spec = Spec(kWorker);
  spec.lease = milliseconds(500);
  const StartedJob job = Submit(spec);
  const pid_t first = Worker(0, 0);
  const pid_t second = Worker(0, 1);
  const pid_t coordinator = ProcessOf("train-coordinator");
  KillDaemon();
  ASSERT_EQ(::kill(coordinator, SIGKILL), 0);
  WaitUntil([&] { return !Alive(first) && !Alive(second); }, "the lease to end the workers");
  WaitUntil([&] { return ProcessesNaming(job.job_folder).empty(); }, "the shim to end");
}

TEST_F(ControlDeath, AResumeThatFailsLeavesTheJobAsItWas) {
  ASSERT_TRUE(StartDaemon().ok());
  const StartedJob job = Submit(Spec("true"));
  ASSERT_TRUE(FrontEnd(job.job_socket, {.output = false, .owner = true}).AwaitEnd().has_value());
  ASSERT_TRUE(AwaitDaemonEnd());
  // Damaged before its end, which no crash does.
  auto journal = ReadFile(job.job_folder + "/journal");
  ASSERT_TRUE(journal.ok());
  (*journal)[30] = static_cast<char>((*journal)[30] ^ 1);
  ASSERT_TRUE(WriteFileAtomically(job.job_folder + "/journal", *journal).ok());
  ASSERT_TRUE(StartDaemon().ok());
  const absl::Status status = NodeClient(daemon_socket_).Resume(job.job_folder).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
  ASSERT_TRUE(AwaitDaemonEnd());
  EXPECT_EQ(*ReadFile(job.job_folder + "/journal"), *journal);
  EXPECT_TRUE(ReadFile(job.job_folder + "/spec.pb").ok());
}

TEST_F(ControlDeath, AJobWhoseProcessesAreAllGoneIsResumed) {
  ASSERT_TRUE(StartDaemon().ok());
  JobSpec spec = Spec(kWorker);
  spec.lease = seconds(2);  // of less, a slow daemon may look hung
  const StartedJob job = Submit(spec);
  Worker(0, 0);
  Worker(0, 1);
  const pid_t coordinator = ProcessOf("train-coordinator");
  KillDaemon();
  ASSERT_EQ(::kill(coordinator, SIGKILL), 0);
  WaitUntil([&] { return ProcessesNaming(job.job_folder).empty(); }, "the shim to end");
  ASSERT_TRUE(StartDaemon().ok());
  const auto resumed = NodeClient(daemon_socket_).Resume(job.job_folder);
  ASSERT_TRUE(resumed.ok()) << resumed.status();
  FrontEnd front(resumed->job_socket, {.output = true, .owner = true});
  Go();
  const auto ended = front.AwaitEnd();
  ASSERT_TRUE(ended.has_value()) << front.end_status();
  EXPECT_EQ(ended->outcome, "succeeded") << ended->reason;
  EXPECT_TRUE(AwaitDaemonEnd());
}

}  // namespace
}  // namespace trainctl::testing
