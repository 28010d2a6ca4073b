// Jobs of shell workers from submission to their end.
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "runtime/base/fd.h"
#include "runtime/base/file.h"
#include "runtime/base/places.h"
#include "tests/process/control/control_fixture.h"

namespace trainctl::testing {
namespace {

using ::testing::HasSubstr;

TEST_F(Control, ADaemonRemovesTheSocketOfACoordinatorThatIsNoMore) {
  ASSERT_TRUE(MakePrivateFolder(SocketFolder()).ok());
  const std::string dead = JobSocket(absl::StrCat("dead-", ::getpid()));
  const std::string live = JobSocket(absl::StrCat("live-", ::getpid()));
  ASSERT_TRUE(ListenUnix(dead, 0600).ok());  // closed at once, and left behind
  const absl::StatusOr<Fd> listens = ListenUnix(live, 0600);
  ASSERT_TRUE(StartDaemon({}).ok());
  WaitUntil([&] { return ::access(dead.c_str(), F_OK) != 0; }, "the end of " + dead);
  EXPECT_EQ(::access(live.c_str(), F_OK), 0);
  ::unlink(live.c_str());
}

TEST_F(Control, RunsAJobToItsEndAndLeavesNothing) {
  ASSERT_TRUE(StartDaemon().ok());
  const StartedJob job =
      Submit(Spec("echo rank $RANK of $WORLD_SIZE; echo oops >&2; test $RANK = 0 || cat"));
  FrontEnd front(job.job_socket, {.output = true, .owner = true});
  const auto ended = front.AwaitEnd();
  ASSERT_TRUE(ended.has_value()) << front.end_status();
  EXPECT_EQ(ended->outcome, "succeeded") << ended->reason;
  EXPECT_EQ(ended->exit_status, 0);
  EXPECT_EQ(front.Output(0), "rank 0 of 2\n");
  EXPECT_EQ(front.Output(1), "rank 1 of 2\n");
  EXPECT_EQ(front.Output(1, 2), "oops\n");
  EXPECT_TRUE(AwaitDaemonEnd());
  const auto report = ReadFile(ended->report_path);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_THAT(*report, HasSubstr("\"outcome\": \"succeeded\""));
}

TEST_F(Control, ReportsTheRankThatFailedWithItsLastWords) {
  ASSERT_TRUE(StartDaemon().ok());
  const StartedJob job =
      Submit(Spec("if [ $RANK = 1 ]; then echo no such data >&2; exit 7; fi; sleep 1000"));
  FrontEnd front(job.job_socket, {.output = true, .owner = true});
  const auto ended = front.AwaitEnd();
  ASSERT_TRUE(ended.has_value()) << front.end_status();
  EXPECT_EQ(ended->outcome, "failed");
  EXPECT_EQ(ended->exit_status, 1);
  EXPECT_THAT(ended->summary, HasSubstr("rank 1"));
  EXPECT_THAT(ended->summary, HasSubstr("| no such data"));
  EXPECT_EQ(front.Output(1, 2), "no such data\n");
  EXPECT_TRUE(AwaitDaemonEnd());
}

TEST_F(Control, RestartsWithinTheBudgetAndShowsTheOutputOfBothEpochs) {
  ASSERT_TRUE(StartDaemon().ok());
  JobSpec spec = Spec(
      "echo epoch $TRAINCTL_EPOCH; [ $TRAINCTL_EPOCH = 1 ] && exit 0; "
      "[ $RANK = 0 ] && kill -9 $$; sleep 1000");
  spec.max_restarts = 1;
  const StartedJob job = Submit(spec);
  FrontEnd front(job.job_socket, {.output = true, .owner = true});
  const auto ended = front.AwaitEnd();
  ASSERT_TRUE(ended.has_value()) << front.end_status();
  EXPECT_EQ(ended->outcome, "succeeded") << ended->reason;
  EXPECT_EQ(front.Output(0), "epoch 0\nepoch 1\n");
  EXPECT_EQ(front.Output(1), "epoch 0\nepoch 1\n");
  EXPECT_TRUE(AwaitDaemonEnd());
}

TEST_F(Control, DeliversEveryByteOfAFloodToAFrontEndThatStopsForAWhile) {
  ASSERT_TRUE(StartDaemon().ok());
  const StartedJob job =
      Submit(Spec("yes 0123456789abcdef0123456789abcde | head -c 40000000; echo done > done", 1));
  FrontEnd front(job.job_socket, {.output = true, .owner = true});
  front.Await([](FrontEnd& f) { return !f.Output(0).empty(); }, "the first output");
  front.Hold();
  // The worker is not slowed down by a front end that is stopped.
  WaitUntil([&] { return ReadFile(File("done")).ok(); }, "the worker to end its flood");
  front.Unhold();
  const auto ended = front.AwaitEnd();
  ASSERT_TRUE(ended.has_value()) << front.end_status();
  EXPECT_EQ(front.Output(0).size(), 40000000u);
  EXPECT_TRUE(AwaitDaemonEnd());
}

TEST_F(Control, StopsOnRequestAndKillsTheDeafAfterTheGrace) {
  ASSERT_TRUE(StartDaemon().ok());
  JobSpec spec = Spec("trap '' TERM; echo up; while :; do sleep 0.05; done");
  spec.grace = milliseconds(200);
  const StartedJob job = Submit(spec);
  FrontEnd front(job.job_socket, {.output = true, .owner = true});
  front.Await([](FrontEnd& f) { return f.Output(0) == "up\n" && f.Output(1) == "up\n"; },
              "both workers to be up");
  EXPECT_TRUE(JobClient(job.job_socket).Stop({"the test", false, false}).ok());
  const auto ended = front.AwaitEnd();
  ASSERT_TRUE(ended.has_value()) << front.end_status();
  EXPECT_EQ(ended->outcome, "stopped");
  EXPECT_TRUE(AwaitDaemonEnd());
}

TEST_F(Control, SendsASignalToEveryWorker) {
  ASSERT_TRUE(StartDaemon().ok());
  const StartedJob job =
      Submit(Spec("trap 'echo got; exit 0' USR1; echo up; while :; do sleep 0.01; done"));
  FrontEnd front(job.job_socket, {.output = true, .owner = true});
  front.Await([](FrontEnd& f) { return f.Output(0) == "up\n" && f.Output(1) == "up\n"; },
              "both workers to be up");
  EXPECT_TRUE(JobClient(job.job_socket).Signal(SIGUSR1, {}).ok());
  EXPECT_FALSE(JobClient(job.job_socket).Signal(-3, {}).ok());
  EXPECT_FALSE(JobClient(job.job_socket).Signal(SIGUSR1, {99}).ok());
  ASSERT_TRUE(front.AwaitEnd().has_value());
  EXPECT_EQ(front.Output(1), "up\ngot\n");
  EXPECT_TRUE(AwaitDaemonEnd());
}

TEST_F(Control, AShortOrphanTimeoutEndsAJobThatNobodyWatches) {
  ASSERT_TRUE(StartDaemon().ok());
  JobSpec spec = Spec("echo up > up.$RANK; sleep 1000");
  spec.orphan_timeout = milliseconds(100);
  const StartedJob job = Submit(spec);
  {
    FrontEnd front(job.job_socket, {.output = false, .owner = true});
    WaitUntil([&] { return ReadFile(File("up.1")).ok(); }, "the workers to be up");
  }
  EXPECT_TRUE(AwaitDaemonEnd());
}

TEST_F(Control, RefusesASpecificationThatMakesNoSense) {
  ASSERT_TRUE(StartDaemon().ok());
  NodeClient daemon(daemon_socket_);
  JobSpec spec = Spec("true");
  spec.workers_per_node = 1000000;
  EXPECT_EQ(daemon.Submit(spec).status().code(), absl::StatusCode::kInvalidArgument);
  spec = Spec("true");
  spec.job_id = "../../etc";
  EXPECT_EQ(daemon.Submit(spec).status().code(), absl::StatusCode::kInvalidArgument);
  spec = Spec("true");
  spec.command.clear();
  const absl::Status status = daemon.Submit(spec).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("command"));
  EXPECT_TRUE(AwaitDaemonEnd());
  EXPECT_TRUE(std::filesystem::is_empty(File("state/jobs"))) << "a job that never was is left";
}

TEST_F(Control, AGpuIsGivenToOneJobAtATime) {
  ASSERT_TRUE(StartDaemon({}).ok());
  JobSpec spec = Spec("echo up; sleep 1000", 1);
  spec.gpus = {absl::StrCat("GPU-test-", ::getpid())};
  const StartedJob job = Submit(spec);
  FrontEnd front(job.job_socket, {.output = true, .owner = true});
  front.Await([](FrontEnd& f) { return f.Output(0) == "up\n"; }, "the first job to run");
  NodeClient daemon(daemon_socket_);
  const absl::Status second = daemon.Submit(spec).status();
  EXPECT_EQ(second.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(second.message()), HasSubstr(job.job_id));
  EXPECT_TRUE(JobClient(job.job_socket).Stop({"the test", false, true}).ok());
  ASSERT_TRUE(front.AwaitEnd().has_value());
  WaitUntil([&] { return ProcessOf("train-shim") == 0; }, "the first job's shim to be gone");
  spec.command = {"/bin/true"};
  const StartedJob third = Submit(spec);
  EXPECT_EQ(FrontEnd(third.job_socket, {}).AwaitEnd()->outcome, "succeeded");
  WaitUntil([&] { return daemon.Describe()->jobs.empty(); }, "the daemon to be done");
}

TEST_F(Control, AJobWithoutAJournalDoesNotStartAndSaysWhy) {
  ASSERT_TRUE(StartDaemon().ok());
  JobSpec spec = Spec("echo up > up");
  spec.job_folder = File("job");
  // Even root cannot write there.
  ASSERT_EQ(::mkdir(spec.job_folder.c_str(), 0700), 0);
  ASSERT_EQ(::symlink("/proc/version", (spec.job_folder + "/journal").c_str()), 0);
  const absl::Status status = NodeClient(daemon_socket_).Submit(spec).status();
  EXPECT_FALSE(status.ok());
  EXPECT_THAT(std::string(status.message()), HasSubstr("journal"));
  EXPECT_TRUE(AwaitDaemonEnd());
  EXPECT_FALSE(ReadFile(File("up")).ok());
}

}  // namespace
}  // namespace trainctl::testing
