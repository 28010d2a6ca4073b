#include "launcher/coordinator/verdict.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <csignal>

#include "launcher/coordinator/error_json.h"

namespace trainctl {
namespace {

WorkerExit Code(int code, std::string tail = "") {
  WorkerExit exit;
  exit.code = code;
  exit.output_tail = std::move(tail);
  return exit;
}

WorkerExit Signal(int signo, bool by_us = false) {
  WorkerExit exit;
  exit.kind = WorkerExit::Kind::kSignaled;
  exit.code = signo;
  exit.by_us = by_us;
  return exit;
}

WorkerExit SpawnError(int error) {
  WorkerExit exit;
  exit.kind = WorkerExit::Kind::kSpawnFailed;
  exit.code = error;
  exit.message = "execve /x";
  return exit;
}

WorkerExit At(WorkerExit exit, int64_t ns) {
  exit.exit_ns = ns;
  return exit;
}

FailureClass ClassOf(const WorkerExit& exit, bool stepped = false) {
  EpochEvidence evidence;
  evidence.exits = {{0, "n1", exit}};
  evidence.stepped = stepped;
  return JudgeExits(evidence)->failure_class;
}

int Culprit(std::vector<RankExit> exits) {
  EpochEvidence evidence;
  evidence.exits = std::move(exits);
  const auto failure = JudgeExits(evidence);
  return failure ? failure->rank : -1;
}

TEST(Verdict, NoFailureWithoutACulprit) {
  EXPECT_EQ(Culprit({}), -1);
  EXPECT_EQ(Culprit({{0, "n1", Code(0)}}), -1);
}

TEST(Verdict, OnOneNodeTheEarliestIsTheCulprit) {
  EXPECT_EQ(Culprit({{0, "n1", At(Code(1), 20)}, {1, "n1", At(Signal(SIGSEGV), 10)}}), 1);
}

TEST(Verdict, BetweenNodesTheFirstTold) {
  EXPECT_EQ(Culprit({{0, "n1", At(Code(1), 20)}, {1, "n2", At(Signal(SIGSEGV), 10)}}), 0);
}

TEST(Verdict, WhomWeKilledIsAVictim) {
  EXPECT_EQ(Culprit({{0, "n1", At(Signal(SIGTERM, true), 1)}, {1, "n1", At(Code(1), 9)}}), 1);
}

TEST(Verdict, WhoLostAPeerIsAVictim) {
  const std::string tail = "RuntimeError: [../gloo/pair.cc:598] Connection closed by peer [::1]";
  EXPECT_EQ(Culprit({{0, "n1", At(Code(1, tail), 1)}, {1, "n1", At(Signal(SIGKILL), 9)}}), 1);
  EXPECT_EQ(Culprit({{0, "n1", At(Code(1, tail), 1)}, {1, "n1", At(Code(1, tail), 9)}}), 0);
}

WorkerExit Telling(const std::string& extra) {
  WorkerExit exit = Code(1);
  exit.error_json = R"({"message": {"message": "it waits", "extraInfo": )" + extra + "}}";
  return exit;
}

TEST(Verdict, AWorkerThatKnowsTheClassIsBelieved) {
  EXPECT_EQ(ClassOf(Telling(R"({"class": "disk"})"), true), FailureClass::kDisk);
  EXPECT_EQ(ClassOf(Telling(R"({"class": "no such class"})"), true), FailureClass::kWorker);
  EXPECT_EQ(ClassOf(Telling(R"({"class": 7, "rank": "x"})"), true), FailureClass::kWorker);
  EXPECT_EQ(ClassOf(Telling("[]"), true), FailureClass::kWorker);
}

TEST(Verdict, WhoWaitedInVainIsNotToBlame) {
  EpochEvidence evidence;
  evidence.nodes = {{"n1", "", "", 0, 1}, {"n2", "", "", 1, 1}};
  evidence.exits = {{0, "n1", Telling(R"({"class": "hang", "rank": 1})")}};
  Failure failure = *JudgeExits(evidence);
  EXPECT_EQ(failure.rank, 1);
  EXPECT_EQ(failure.node, "n2");
  EXPECT_EQ(failure.failure_class, FailureClass::kHang);
  EXPECT_EQ(failure.reason, "rank 1 on n2 hangs; rank 0 waited for it in vain: it waits");
  evidence.exits = {{0, "n1", Telling(R"({"class": "hang", "rank": 2})")}};
  failure = *JudgeExits(evidence);
  EXPECT_EQ(failure.rank, 0) << "there is no rank 2";
}

TEST(Verdict, TellsProgramsThatAreWrong) {
  for (const char* tail :
       {"Traceback (most recent call last):\nModuleNotFoundError: No module named 'x'\n",
        "ImportError: cannot import name 'y'\nbye", "  File \"t.py\"\nSyntaxError: invalid syntax",
        "IndentationError: unexpected indent", "NameError: name 'foo' is not defined"}) {
    EXPECT_EQ(ClassOf(Code(1, tail)), FailureClass::kUserError) << tail;
    EXPECT_EQ(ClassOf(Code(1, tail), true), FailureClass::kWorker) << "it had trained before";
  }
  EXPECT_EQ(ClassOf(Code(2, "usage: t.py [-h]\nt.py: error: unrecognized arguments: --lrr")),
            FailureClass::kUserError);
  EXPECT_EQ(ClassOf(Code(2, "python3: can't open file '/a.py': [Errno 2]")),
            FailureClass::kUserError);
  EXPECT_EQ(ClassOf(Code(1, "/usr/bin/python3: No module named trian")), FailureClass::kUserError);
  EXPECT_EQ(ClassOf(Code(127, "sh: 1: trian: not found")), FailureClass::kUserError);
  EXPECT_EQ(ClassOf(Code(2, "train-worker: open sea.txt: No such file or directory")),
            FailureClass::kUserError);
  EXPECT_EQ(ClassOf(Code(2, "something else")), FailureClass::kWorker);
  EXPECT_EQ(ClassOf(Code(1, "ValueError: ModuleNotFoundError: quoted")), FailureClass::kWorker);
  EXPECT_EQ(ClassOf(Code(1, "MyImportError: of the user's own")), FailureClass::kWorker);
}

TEST(Verdict, ReadsErrorJsonBeforeTheOutput) {
  WorkerExit exit = Code(1, "ImportError: something old");
  exit.error_json = R"({"message": {"message": "ValueError: bad\nmore", "extraInfo": {}}})";
  EXPECT_EQ(ClassOf(exit), FailureClass::kWorker);
  exit.error_json = R"({"message": "ModuleNotFoundError: No module named 'x'", "timestamp": 1})";
  EXPECT_EQ(ClassOf(exit), FailureClass::kUserError);
}

TEST(Verdict, QuotesNoMoreThanALine) {
  EpochEvidence evidence;
  evidence.exits = {{0, "n1", Code(1, "ValueError: " + std::string(60000, 'x'))}};
  EXPECT_LT(JudgeExits(evidence)->reason.size(), 400u);
}

TEST(Verdict, ErrorJsonMayHoldAnything) {
  EXPECT_EQ(ErrorMessage(R"({"message": {"message": "a\nb"}})"), "a");
  EXPECT_EQ(ErrorMessage(R"({"message": "c"})"), "c");
  for (const char* odd : {"", "{", "[]", "7", "{}", R"({"message": 7})", R"({"message": {}})",
                          R"({"message": {"message": []}})", "\xff\xfe"}) {
    EXPECT_EQ(ErrorMessage(odd), "") << odd;
  }
  EXPECT_EQ(ErrorMessage(std::string(65536, '[')), "");
}

TEST(Verdict, TellsMemory) {
  EXPECT_EQ(ClassOf(Code(1, "MemoryError")), FailureClass::kOutOfMemory);
  WorkerExit aborted = Signal(SIGABRT);
  aborted.output_tail = "terminate called after throwing an instance of 'std::bad_alloc'";
  EXPECT_EQ(ClassOf(aborted), FailureClass::kOutOfMemory);
  WorkerExit killed = Signal(SIGKILL);
  EXPECT_EQ(ClassOf(killed), FailureClass::kWorker);
  killed.message = "the cgroup counts an oom_kill";
  EXPECT_EQ(ClassOf(killed), FailureClass::kOutOfMemory);
}

TEST(Verdict, TellsTheMemoryOfAGpuByTheWordsOfWhoeverAskedForIt) {
  for (const char* tail :
       {"torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; …",
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has a",
        "RuntimeError: CUDA error: out of memory\nCUDA kernel errors might be asynchronously",
        "terminate called after throwing an instance of 'c10::OutOfMemoryError'\n  what():  CUDA",
        "error: cudaMalloc: cudaErrorMemoryAllocation (2)",
        "n1:71:90 [0] include/alloc.h:159 NCCL WARN Cuda failure 2 'out of memory'\n"
        "torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:1691, unhandled",
        "n1:71:90 [0] NCCL WARN Failed to CUDA calloc async 4194304 bytes",
        "RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
        "torch.OutOfMemoryError: CUDA out of memory.\n\nDuring handling of the above exception, "
        "another exception occurred:\nRuntimeError: cannot save"}) {
    EXPECT_EQ(ClassOf(Code(1, tail)), FailureClass::kGpuOutOfMemory) << tail;
  }
  for (const char* tail :
       {"RuntimeError: [enforce fail at alloc_cpu.cpp:75] . DefaultCPUAllocator: can't allocate "
        "memory: you tried to allocate 8000000000000 bytes. Error code 12 (Cannot allocate memory)",
        "numpy.core._exceptions._ArrayMemoryError: Unable to allocate 7.28 TiB for an array"}) {
    EXPECT_EQ(ClassOf(Code(1, tail)), FailureClass::kOutOfMemory) << tail;
  }
}

TEST(Verdict, ALackOfMemoryThatTheProgramOutlivedIsNotTheCause) {
  EXPECT_EQ(ClassOf(Code(1,
                         "WARNING: CUDA out of memory, trying a smaller batch\nstep 7\n"
                         "ValueError: the batch is empty")),
            FailureClass::kWorker);
}

TEST(Verdict, SaysWhereMemoryIsReadFrom) {
  EpochEvidence evidence;
  evidence.exits = {{0, "n1",
                     Code(1,
                          "NCCL WARN Cuda failure 2 'out of memory'\n"
                          "DistBackendError: NCCL error: unhandled cuda error")}};
  EXPECT_EQ(JudgeExits(evidence)->reason,
            "rank 0 on n1 exited with code 1: DistBackendError: NCCL error: unhandled cuda error; "
            "it had said: NCCL WARN Cuda failure 2 'out of memory'");
  evidence.exits[0].exit = Signal(SIGKILL);
  evidence.exits[0].exit.message = "kernel log: Out of memory: Killed process 71 (cuda_nccl)";
  EXPECT_EQ(JudgeExits(evidence)->failure_class, FailureClass::kOutOfMemory);
  EXPECT_EQ(JudgeExits(evidence)->reason,
            "rank 0 on n1 was killed by SIGKILL: kernel log: Out of memory: Killed process 71 "
            "(cuda_nccl)");
}

TEST(Verdict, ASpawnThatCannotWorkIsAUserErrorAndOneThatMightIsNot) {
  EXPECT_EQ(ClassOf(SpawnError(ENOENT)), FailureClass::kUserError);
  EXPECT_EQ(ClassOf(SpawnError(EACCES)), FailureClass::kUserError);
  EXPECT_EQ(ClassOf(SpawnError(EAGAIN)), FailureClass::kInternal);
  EXPECT_EQ(ClassOf(SpawnError(ENOMEM)), FailureClass::kOutOfMemory);
}

TEST(Verdict, AKillByUsForAnotherReasonIsOurOwnFaultAndSaysWhy) {
  EpochEvidence evidence;
  evidence.exits = {{0, "n1", Signal(SIGKILL, true)}};
  evidence.exits[0].exit.message = "the keeper that held it died";
  const auto failure = JudgeExits(evidence);
  EXPECT_EQ(failure->failure_class, FailureClass::kInternal);
  EXPECT_EQ(failure->reason,
            "rank 0 on n1 was killed by SIGKILL because the keeper that held it died");
}

TEST(Verdict, AKillByUsInALivingEpochIsTheEndOfALease) {
  EXPECT_EQ(ClassOf(Signal(SIGKILL, true)), FailureClass::kNetwork);
}

TEST(Verdict, ExitStatusesAreThoseOfTheManual) {
  JobSpec spec;
  Failure failure;
  failure.rank = 0;
  failure.exit = Code(7);
  EXPECT_EQ(FailedExitStatus(spec, failure, true), 1);
  spec.propagate_exit_code = true;
  EXPECT_EQ(FailedExitStatus(spec, failure, true), 7);
  failure.exit = Signal(SIGSEGV);
  EXPECT_EQ(FailedExitStatus(spec, failure, true), 128 + SIGSEGV);
  failure.failure_class = FailureClass::kUserError;
  failure.exit = SpawnError(ENOENT);
  EXPECT_EQ(FailedExitStatus(spec, failure, false), 2);
  spec.requeue_status = true;
  EXPECT_EQ(FailedExitStatus(spec, failure, false), 93);
  failure.failure_class = FailureClass::kPreempted;
  EXPECT_EQ(FailedExitStatus(spec, failure, true), 75);
  EXPECT_EQ(FailedExitStatus(JobSpec(), JudgeLostNode(Epoch(0), "n1", "gone"), true), 1);
}

TEST(Verdict, DescribesEndsInWords) {
  EXPECT_EQ(DescribeExit(Code(7)), "exited with code 7");
  WorkerExit crashed = Signal(SIGSEGV);
  crashed.core = true;
  EXPECT_EQ(DescribeExit(crashed), "was killed by SIGSEGV (core dumped)");
  EXPECT_EQ(DescribeExit(Signal(63)), "was killed by signal 63");
  EXPECT_EQ(DescribeExit(SpawnError(ENOENT)), "could not be started: execve /x");
}

TEST(Verdict, VictimTellsOfNothingButALostPeer) {
  const auto judged = [](const WorkerExit& exit) {
    return *JudgeExits({Epoch(0), {{0, "n1", exit}}, true, false, {}});
  };
  EXPECT_TRUE(IsVictim(judged(Code(1, "RuntimeError: Connection closed by peer [10.0.0.2]:5"))));
  EXPECT_FALSE(IsVictim(judged(Code(1, "ValueError: no such data"))));
  EXPECT_FALSE(IsVictim(judged(Code(1, "Broken pipe\nMemoryError: out of memory"))));
  EXPECT_FALSE(IsVictim(JudgeLostNode(Epoch(0), "n1", "its lease ended")));
}

TEST(Verdict, SigtermToTheWorkersOfAPreemptibleJobIsNoFailureOfTheirs) {
  EpochEvidence evidence{Epoch(0), {{0, "n1", Signal(SIGTERM)}}, true, false, {}};
  EXPECT_EQ(JudgeExits(evidence)->failure_class, FailureClass::kWorker);
  evidence.preemptible = true;
  EXPECT_EQ(JudgeExits(evidence)->failure_class, FailureClass::kPreempted);
}

TEST(WorkerStatus, IsTheWorkersOwnUnlessWeEndedIt) {
  EXPECT_EQ(WorkerStatus(Code(0), 1), 0);
  EXPECT_EQ(WorkerStatus(Code(7), 1), 7);
  EXPECT_EQ(WorkerStatus(Signal(SIGSEGV), 1), 128 + SIGSEGV);
  EXPECT_EQ(WorkerStatus(Signal(SIGTERM, true), 75), 75);
  EXPECT_EQ(WorkerStatus(SpawnError(ENOENT), 2), 2);
  WorkerExit lost;
  lost.kind = WorkerExit::Kind::kLost;
  EXPECT_EQ(WorkerStatus(lost, 1), 1);
}

}  // namespace
}  // namespace trainctl
