#include "launcher/coordinator/worker_env.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace trainctl {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::Not;
using testing::StartsWith;

EpochFormed TwoNodes() {
  EpochFormed epoch;
  epoch.epoch = Epoch(3);
  epoch.nodes = {{"n1", "m1", "10.0.0.1", 0, 2}, {"n2", "m2", "10.0.0.2", 2, 2}};
  epoch.master_address = "10.0.0.1";
  epoch.master_port = 29500;
  return epoch;
}

JobSpec EnvSpec() {
  JobSpec spec;
  spec.job_id = "job-7";
  spec.command = {"python3", "-u", "train.py", "--out=o.${local_rank}.${local_rank}"};
  spec.cwd = "/home/u";
  spec.log_folder = "/logs";
  spec.max_restarts = 4;
  return spec;
}

std::string ValueIn(const std::vector<std::string>& env, const std::string& name) {
  for (const std::string& entry : env) {
    if (absl::StartsWith(entry, name + "=")) return entry.substr(name.size() + 1);
  }
  return "(unset)";
}

TEST(WorkerEnv, IsTheContractOfTorchrun) {
  const StartWorkers start = PlanWorkers(EnvSpec(), TwoNodes(), "n2", 8);
  EXPECT_EQ(start.node, "n2");
  EXPECT_EQ(start.epoch, Epoch(3));
  EXPECT_EQ(start.world_size, 4);
  EXPECT_EQ(start.cwd, "/home/u");
  for (const char* entry : {"WORLD_SIZE=4",
                            "LOCAL_WORLD_SIZE=2",
                            "GROUP_RANK=1",
                            "GROUP_WORLD_SIZE=2",
                            "ROLE_NAME=default",
                            "ROLE_WORLD_SIZE=4",
                            "MASTER_ADDR=10.0.0.1",
                            "MASTER_PORT=29500",
                            "TORCHELASTIC_RUN_ID=job-7",
                            "TORCHELASTIC_RESTART_COUNT=3",
                            "TORCHELASTIC_MAX_RESTARTS=4",
                            "TORCHELASTIC_USE_AGENT_STORE=False",
                            "TORCH_NCCL_ASYNC_ERROR_HANDLING=1",
                            "NCCL_ASYNC_ERROR_HANDLING=1",
                            "OMP_NUM_THREADS=4",
                            "TRAINCTL_JOB_ID=job-7",
                            "TRAINCTL_EPOCH=3",
                            "TRAINCTL_CHECKPOINT_DIR=",
                            "TRAINCTL_RESUME_FROM=",
                            "JAX_COORDINATOR_ADDRESS=10.0.0.1:29500",
                            "JAX_NUM_PROCESSES=4"}) {
    EXPECT_THAT(start.env, Contains(entry));
  }
  ASSERT_EQ(start.workers.size(), 2u);
  const WorkerLaunch& worker = start.workers[1];
  EXPECT_EQ(worker.rank, 3);
  EXPECT_EQ(worker.local_rank, 1);
  for (const char* entry : {"RANK=3", "LOCAL_RANK=1", "ROLE_RANK=3", "JAX_PROCESS_ID=3"}) {
    EXPECT_THAT(worker.env, Contains(entry));
  }
}

TEST(WorkerEnv, ReplacesLocalRankInArgumentsAndAppendsTheOldFlag) {
  JobSpec spec = EnvSpec();
  spec.local_rank_argument = "local-rank";
  const StartWorkers start = PlanWorkers(spec, TwoNodes(), "n1", 8);
  EXPECT_THAT(start.workers[1].argv,
              ElementsAre("python3", "-u", "train.py", "--out=o.1.1", "--local-rank=1"));
}

TEST(WorkerEnv, TheUsersOwnSettingsStay) {
  JobSpec spec = EnvSpec();
  spec.env = {"OMP_NUM_THREADS=1",
              "NCCL_ASYNC_ERROR_HANDLING=0",
              "NCCL_DEBUG=INFO",
              "A=1",
              "MASTER_PORT=1",
              "RANK=9",
              "A=2=3",
              "B=",
              "malformed",
              "=nameless"};
  const StartWorkers start = PlanWorkers(spec, TwoNodes(), "n1", 8);
  EXPECT_EQ(ValueIn(start.env, "OMP_NUM_THREADS"), "1");
  EXPECT_EQ(ValueIn(start.env, "TORCH_NCCL_ASYNC_ERROR_HANDLING"), "0");
  EXPECT_EQ(ValueIn(start.env, "NCCL_DEBUG"), "INFO");
  EXPECT_EQ(ValueIn(start.env, "A"), "2=3") << "the last one wins";
  EXPECT_EQ(ValueIn(start.env, "B"), "");
  EXPECT_EQ(ValueIn(start.env, "MASTER_PORT"), "29500") << "who and where is not the user's";
  EXPECT_THAT(start.env, Not(Contains("malformed")));
}

TEST(WorkerEnv, NothingOfSystemdReachesAWorker) {
  JobSpec spec = EnvSpec();
  spec.env = {"NOTIFY_SOCKET=/run/x", "LISTEN_FDS=1", "LISTEN_PID=2",      "WATCHDOG_USEC=1",
              "JOURNAL_STREAM=8:9",   "HOME=/home/u", "SYSTEMD_EXEC_PID=3"};
  const StartWorkers start = PlanWorkers(spec, TwoNodes(), "n1", 8);
  EXPECT_THAT(start.env, Contains("HOME=/home/u"));
  for (const char* name :
       {"NOTIFY_SOCKET", "LISTEN_", "WATCHDOG_", "JOURNAL_STREAM", "SYSTEMD_EXEC_PID"}) {
    EXPECT_THAT(start.env, Not(Contains(StartsWith(name))));
  }
}

TEST(WorkerEnv, SeveralNodesMeetOnTheInterfaceThatIsReached) {
  JobSpec spec = EnvSpec();
  EpochFormed epoch = TwoNodes();
  EXPECT_EQ(ValueIn(PlanWorkers(spec, epoch, "n2", 8).env, "GLOO_SOCKET_IFNAME"), "(unset)");
  epoch.nodes[1].interface = "ib0";
  const StartWorkers start = PlanWorkers(spec, epoch, "n2", 8);
  EXPECT_EQ(ValueIn(start.env, "GLOO_SOCKET_IFNAME"), "ib0");
  EXPECT_EQ(ValueIn(start.env, "NCCL_SOCKET_IFNAME"), "=ib0");
  spec.env = {"NCCL_SOCKET_IFNAME=eth"};
  EXPECT_EQ(ValueIn(PlanWorkers(spec, epoch, "n2", 8).env, "NCCL_SOCKET_IFNAME"), "eth");
  epoch.nodes.erase(epoch.nodes.begin());
  EXPECT_EQ(ValueIn(PlanWorkers(spec, epoch, "n2", 8).env, "GLOO_SOCKET_IFNAME"), "(unset)")
      << "on one node nothing is to be chosen";
}

TEST(WorkerEnv, ThreadsAreNeverFewerThanOne) {
  EXPECT_THAT(PlanWorkers(EnvSpec(), TwoNodes(), "n1", 1).env, Contains("OMP_NUM_THREADS=1"));
}

TEST(WorkerEnv, NamesTheCheckpointToStartFrom) {
  JobSpec spec = EnvSpec();
  spec.checkpoint_folder = "/ckpt";
  EpochFormed epoch = TwoNodes();
  epoch.resume_step = Step(1200);
  const StartWorkers start = PlanWorkers(spec, epoch, "n1", 8);
  EXPECT_THAT(start.env, Contains("TRAINCTL_CHECKPOINT_DIR=/ckpt"));
  EXPECT_THAT(start.env, Contains("TRAINCTL_RESUME_FROM=/ckpt/step-000001200"));
  epoch.resume_step = Step(-1);
  EXPECT_THAT(PlanWorkers(spec, epoch, "n1", 8).env, Contains("TRAINCTL_RESUME_FROM="));
}

// Golden values: what TensorFlow and JAX parse must not change by accident.
TEST(WorkerEnv, OtherFrameworksSeeA2x2JobAndItsNextEpochWithOneNodeReplaced) {
  const auto expect = [](const EpochFormed& epoch, const std::string& cluster,
                         const std::string& coordinator) {
    for (const NodeShare& share : epoch.nodes) {
      const StartWorkers start = PlanWorkers(EnvSpec(), epoch, share.node, 8);
      EXPECT_EQ(ValueIn(start.env, "JAX_COORDINATOR_ADDRESS"), coordinator);
      EXPECT_EQ(ValueIn(start.env, "JAX_NUM_PROCESSES"), "4");
      for (const WorkerLaunch& worker : start.workers) {
        const std::string rank = absl::StrCat(worker.rank);
        EXPECT_EQ(ValueIn(worker.env, "JAX_PROCESS_ID"), rank);
        EXPECT_EQ(ValueIn(worker.env, "TF_CONFIG"),
                  absl::StrCat(R"({"cluster": {"worker": [)", cluster,
                               R"(]}, "task": {"type": "worker", "index": )", rank, "}}"));
      }
    }
  };
  EpochFormed epoch = TwoNodes();
  expect(epoch, R"("10.0.0.1:29500", "10.0.0.1:29501", "10.0.0.2:29502", "10.0.0.2:29503")",
         "10.0.0.1:29500");
  // Rank 0's node was lost, and a spare took its ranks.
  epoch.epoch = epoch.epoch.Next();
  epoch.nodes[0].node = "n3";
  epoch.nodes[0].address = "10.0.0.3";
  epoch.master_address = "10.0.0.3";
  epoch.master_port = 31000;
  expect(epoch, R"("10.0.0.3:31000", "10.0.0.3:31001", "10.0.0.2:31002", "10.0.0.2:31003")",
         "10.0.0.3:31000");
}

TEST(WorkerEnv, NoVariableOutgrowsWhatTheKernelTakes) {
  EpochFormed epoch = TwoNodes();
  epoch.nodes.clear();
  for (int rank = 0; rank < 5000; ++rank) {
    epoch.nodes.push_back({absl::StrCat("n", rank), "", "255.255.255.255", rank, 1});
  }
  const StartWorkers start = PlanWorkers(EnvSpec(), epoch, "n7", 8);
  for (const std::string& entry : start.workers[0].env) EXPECT_LT(entry.size(), 131072u);
  EXPECT_EQ(ValueIn(start.workers[0].env, "TF_CONFIG"), "(unset)");
}

TEST(WorkerEnv, AVirtualLocalRankIsZeroWithOneVisibleDevice) {
  JobSpec spec = EnvSpec();
  spec.virtual_local_rank = true;
  spec.local_rank_argument = "local_rank";
  spec.env = {"CUDA_VISIBLE_DEVICES=GPU-a,GPU-b"};
  const WorkerLaunch worker = PlanWorkers(spec, TwoNodes(), "n1", 8).workers[1];
  EXPECT_THAT(worker.env, Contains("LOCAL_RANK=0"));
  EXPECT_THAT(worker.env, Contains("CUDA_VISIBLE_DEVICES=GPU-b"));
  EXPECT_EQ(worker.argv.back(), "--local_rank=0");
  spec.env.clear();
  EXPECT_THAT(PlanWorkers(spec, TwoNodes(), "n1", 8).workers[1].env,
              Contains("CUDA_VISIBLE_DEVICES=1"));
}

TEST(WorkerEnv, OfANodeWhereTheUserTypedTheCommandIsItsOwn) {
  const std::vector<std::string> planned = {"GLOO_SOCKET_IFNAME=eth0", "HEAD_ONLY=1",
                                            "MASTER_ADDR=10.0.0.1",    "OMP_NUM_THREADS=4",
                                            "TRAINCTL_JOB_ID=j",       "USER_SAYS=head"};
  const std::vector<std::string> own = {"MASTER_ADDR=old", "NOTIFY_SOCKET=/s", "OMP_NUM_THREADS=2",
                                        "USER_SAYS=here"};
  EXPECT_THAT(ForOwnNode(planned, own),
              ::testing::ElementsAre("GLOO_SOCKET_IFNAME=eth0", "MASTER_ADDR=10.0.0.1",
                                     "OMP_NUM_THREADS=2", "TRAINCTL_JOB_ID=j", "USER_SAYS=here"));
}

// What the plan sets must be known as its own.
TEST(WorkerEnv, EveryPlannedVariableHasAnOwner) {
  JobSpec spec;
  spec.command = {"p"};
  EpochFormed epoch;
  epoch.nodes = {{"n1", "", "127.0.0.1", 0, 1}};
  epoch.master_address = "127.0.0.1";
  for (const std::string& entry : PlanWorkers(spec, epoch, "n1", 1).env) {
    EXPECT_NE(OwnerOf(entry.substr(0, entry.find('='))), VariableOwner::kUser) << entry;
  }
}

}  // namespace
}  // namespace trainctl
