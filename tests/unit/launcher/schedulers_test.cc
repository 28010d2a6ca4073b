#include "launcher/schedulers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>

namespace trainctl {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Variables = std::map<std::string, std::string>;

NodeIdentity Identity(const Variables& environment, const std::string& full_name = "") {
  const absl::StatusOr<std::optional<NodeIdentity>> found = IdentifyNode(environment, full_name);
  EXPECT_TRUE(found.ok() && found->has_value()) << found.status();
  return found.ok() && found->has_value() ? **found : NodeIdentity();
}

bool Nobody(const Variables& environment) {
  const absl::StatusOr<std::optional<NodeIdentity>> found = IdentifyNode(environment, "");
  return found.ok() && !found->has_value();
}

std::string SchedulerRefusal(const Variables& environment) {
  return std::string(IdentifyNode(environment, "").status().message());
}

// Task 2 of srun on n[1-3] with tasks 2, 2 and 1, as Slurm 22.05 starts it.
Variables SlurmStep() {
  return {{"SLURM_JOB_ID", "4711"},
          {"SLURM_JOBID", "4711"},
          {"SLURM_JOB_NAME", "train"},
          {"SLURM_STEP_ID", "0"},
          {"SLURM_JOB_NODELIST", "n[1-4]"},
          {"SLURM_JOB_NUM_NODES", "4"},
          {"SLURM_STEP_NODELIST", "n[1-3]"},
          {"SLURM_STEP_NUM_NODES", "3"},
          {"SLURM_STEP_NUM_TASKS", "5"},
          {"SLURM_STEP_TASKS_PER_NODE", "2(x2),1"},
          {"SLURM_NODEID", "1"},
          {"SLURM_PROCID", "2"},
          {"SLURM_LOCALID", "0"},
          {"SLURMD_NODENAME", "n2"},
          {"SLURM_GPUS_ON_NODE", "2"},
          {"SLURM_CPUS_ON_NODE", "16"},
          {"SLURM_TOPOLOGY_ADDR", "s0.s2.n2"},
          {"SLURM_TOPOLOGY_ADDR_PATTERN", "switch.switch.node"},
          {"PMI_RANK", "2"},
          {"PMI_SIZE", "5"}};
}

TEST(Schedulers, ATaskOfSlurmKnowsItsNodeAndAllOthers) {
  const NodeIdentity identity = Identity(SlurmStep());
  EXPECT_EQ(identity.scheduler, "Slurm");
  EXPECT_EQ(identity.job_id, "4711.0");
  EXPECT_EQ(identity.node_rank, 1);
  EXPECT_EQ(identity.node_count, 3);
  EXPECT_EQ(identity.node, "n2");
  EXPECT_EQ(identity.head, "n1");
  EXPECT_THAT(identity.nodes, ElementsAre("n1", "n2", "n3"));
  EXPECT_TRUE(identity.on_every_node);
  EXPECT_EQ(identity.local_id, 0);
  EXPECT_EQ(identity.local_tasks, 2);
  EXPECT_EQ(identity.gpus, 2);
  EXPECT_EQ(identity.cpus, 16);
  EXPECT_EQ(identity.topology, "s0.s2.n2");
  EXPECT_EQ(identity.requeues, 0);
}

TEST(Schedulers, SlurmTellsOfRequeuesAndWithoutSwitchesThereIsNoTopology) {
  Variables environment = SlurmStep();
  environment["SLURM_RESTART_COUNT"] = "2";
  environment["SLURM_TOPOLOGY_ADDR"] = "n2";
  environment["SLURM_TOPOLOGY_ADDR_PATTERN"] = "node";
  const NodeIdentity identity = Identity(environment);
  EXPECT_EQ(identity.requeues, 2);
  EXPECT_EQ(identity.topology, "");
}

TEST(Schedulers, TheNameOfASlurmNodeCountsMoreThanItsNumber) {
  Variables environment = SlurmStep();
  environment["SLURM_STEP_NODELIST"] = "n[2-4]";  // the step's second node is the job's third
  environment["SLURMD_NODENAME"] = "n3";
  environment["SLURM_NODEID"] = "2";
  EXPECT_EQ(Identity(environment).node_rank, 1);
}

TEST(Schedulers, ABatchScriptRunsOnceForTheWholeJob) {
  const NodeIdentity identity = Identity({{"SLURM_JOB_ID", "7"},
                                          {"SLURM_JOB_NODELIST", "n[1-2]"},
                                          {"SLURM_JOB_NUM_NODES", "2"},
                                          {"SLURM_NODEID", "0"},
                                          {"SLURM_PROCID", "0"},
                                          {"SLURM_LOCALID", "0"},
                                          {"SLURM_TASKS_PER_NODE", "1(x2)"},
                                          {"SLURMD_NODENAME", "n1"}});
  EXPECT_FALSE(identity.on_every_node);
  EXPECT_EQ(identity.node_count, 2);
  EXPECT_EQ(identity.local_tasks, 1);
}

TEST(Schedulers, AShellWithinSlurmIsNobody) {
  // salloc: a shell where the user typed it.
  EXPECT_TRUE(Nobody({{"SLURM_JOB_ID", "7"}, {"SLURM_JOB_NODELIST", "n[1-2]"}}));
  // srun --pty bash, and salloc with an interactive step.
  for (const char* name : {"bash", "interactive"}) {
    Variables environment = SlurmStep();
    environment["SLURM_JOB_NAME"] = name;
    environment["SLURM_STEP_NUM_TASKS"] = "1";
    environment.erase("PMI_RANK");
    EXPECT_TRUE(Nobody(environment)) << name;
  }
}

TEST(Schedulers, ContradictionsOfSlurmNameTheVariable) {
  Variables environment = SlurmStep();
  environment["SLURM_NODEID"] = "x";
  EXPECT_THAT(SchedulerRefusal(environment), HasSubstr("SLURM_NODEID: found \"x\""));
  environment = SlurmStep();
  environment["SLURM_STEP_NUM_NODES"] = "4";
  EXPECT_THAT(SchedulerRefusal(environment), HasSubstr("names 3 nodes"));
  environment = SlurmStep();
  environment["SLURM_STEP_TASKS_PER_NODE"] = "2(x1)";
  EXPECT_THAT(SchedulerRefusal(environment), HasSubstr("SLURM_STEP_TASKS_PER_NODE"));
  environment = SlurmStep();
  environment["SLURMD_NODENAME"] = "elsewhere";
  environment["SLURM_NODEID"] = "3";
  EXPECT_THAT(SchedulerRefusal(environment), HasSubstr("node 3 of a job of 3"));
  environment = SlurmStep();
  environment["SLURM_STEP_NODELIST"] = "n[1-";
  EXPECT_THAT(SchedulerRefusal(environment), HasSubstr("NODELIST"));
}

TEST(Schedulers, AProcessOfOpenMpiIsANode) {
  const NodeIdentity identity =
      Identity({{"OMPI_COMM_WORLD_RANK", "3"},
                {"OMPI_COMM_WORLD_SIZE", "4"},
                {"OMPI_COMM_WORLD_LOCAL_RANK", "0"},
                {"OMPI_COMM_WORLD_LOCAL_SIZE", "1"},
                {"OMPI_MCA_ess_base_jobid", "2863202305"},
                {"OMPI_MCA_orte_hnp_uri", "2863202304.0;tcp://10.0.0.1,192.168.0.1:44321"}});
  EXPECT_EQ(identity.scheduler, "Open MPI");
  EXPECT_EQ(identity.job_id, "2863202305");
  EXPECT_EQ(identity.node_rank, 3);
  EXPECT_EQ(identity.node_count, 4);
  EXPECT_EQ(identity.head, "10.0.0.1");
}

TEST(Schedulers, SeveralProcessesOfMpiOnANodeAreRefusedWithTheCommandThatMendsIt) {
  EXPECT_THAT(SchedulerRefusal({{"OMPI_COMM_WORLD_RANK", "3"},
                                {"OMPI_COMM_WORLD_SIZE", "8"},
                                {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"}}),
              HasSubstr("mpirun -N 1"));
  // All on one machine: every process but one lends its slot, as tasks of Slurm do.
  EXPECT_EQ(Identity({{"OMPI_COMM_WORLD_RANK", "3"},
                      {"OMPI_COMM_WORLD_SIZE", "4"},
                      {"OMPI_COMM_WORLD_LOCAL_RANK", "3"},
                      {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"}})
                .node_count,
            1);
}

TEST(Schedulers, AProcessOfHydraIsANode) {
  const NodeIdentity identity = Identity(
      {{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}, {"MPI_LOCALNRANKS", "1"}, {"MPI_LOCALRANKID", "0"}});
  EXPECT_EQ(identity.scheduler, "PMI");
  EXPECT_EQ(identity.node_rank, 1);
  EXPECT_EQ(identity.node_count, 2);
  EXPECT_EQ(identity.head, "");
}

TEST(Schedulers, APodOfAnIndexedJobFindsPodZero) {
  const Variables environment = {{"JOB_COMPLETION_INDEX", "2"},
                                 {"KUBERNETES_SERVICE_HOST", "10.96.0.1"},
                                 {"HOSTNAME", "train-2"}};
  const NodeIdentity identity = Identity(environment, "train-2.svc.ns.svc.cluster.local");
  EXPECT_EQ(identity.scheduler, "Kubernetes");
  EXPECT_EQ(identity.job_id, "train");
  EXPECT_EQ(identity.node_rank, 2);
  EXPECT_EQ(identity.node_count, 0);
  EXPECT_EQ(identity.head, "train-0.svc.ns.svc.cluster.local");
  EXPECT_THAT(identity.nodes, IsEmpty());
  // Without a headless service pods have no names for each other.
  EXPECT_EQ(Identity(environment).head, "");
}

TEST(Schedulers, APlainShellIsNobody) {
  EXPECT_TRUE(Nobody({}));
  EXPECT_TRUE(Nobody({{"HOSTNAME", "train-2"}, {"JOB_COMPLETION_INDEX", "2"}}));
}

TEST(Schedulers, APortForAJobIsTheSameEverywhereAndInRange) {
  EXPECT_EQ(PortForJob("4711"), PortForJob("4711"));
  EXPECT_NE(PortForJob("4711"), PortForJob("4712"));
  for (int job = 0; job < 1000; ++job) {
    const int port = PortForJob(std::to_string(job));
    EXPECT_GE(port, 20000);
    EXPECT_LT(port, 30000);
  }
}

}  // namespace
}  // namespace trainctl
