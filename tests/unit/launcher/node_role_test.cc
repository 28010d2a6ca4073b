#include "launcher/node_role.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace trainctl {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

bool IsOwn(const std::string& name) { return name == "here" || name == "10.0.0.1"; }

NodeRole Role(const LaunchFlags& flags, const std::optional<NodeIdentity>& scheduler = {},
              const std::vector<ListedNode>& listed = {}) {
  const absl::StatusOr<NodeRole> role = DecideRole(flags, scheduler, listed, IsOwn);
  EXPECT_TRUE(role.ok()) << role.status();
  return role.ok() ? *role : NodeRole();
}

std::string RoleRefusal(const LaunchFlags& flags, const std::optional<NodeIdentity>& scheduler = {},
                        const std::vector<ListedNode>& listed = {}) {
  const absl::Status status = DecideRole(flags, scheduler, listed, IsOwn).status();
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  return std::string(status.message());
}

LaunchFlags Flags(const char* nnodes = nullptr, const char* endpoint = nullptr,
                  const char* node_rank = nullptr) {
  LaunchFlags flags;
  flags.program = {"train.py", "--lr", "0.1"};
  if (nnodes != nullptr) flags.nnodes = nnodes;
  if (endpoint != nullptr) flags.rdzv_endpoint = endpoint;
  if (node_rank != nullptr) flags.node_rank = node_rank;
  return flags;
}

NodeIdentity Slurm(int rank, int count) {
  NodeIdentity identity;
  identity.scheduler = "Slurm";
  identity.job_id = "4711";
  identity.node_rank = rank;
  identity.node_count = count;
  identity.node = "n" + std::to_string(rank + 1);
  identity.head = "n1";
  identity.topology = "s0.n1";
  for (int i = 1; i <= count; ++i) identity.nodes.push_back("n" + std::to_string(i));
  return identity;
}

TEST(NodeRole, OneNodeNeedsNothing) {
  const NodeRole role = Role(Flags());
  EXPECT_FALSE(role.several);
  EXPECT_TRUE(role.hosts);
  EXPECT_TRUE(role.endpoint.empty());
  EXPECT_FALSE(Role(Flags("1", "elsewhere:29400", "0")).several);
}

TEST(NodeRole, NodeRankZeroHostsAndTheOthersTakePart) {
  const NodeRole head = Role(Flags("2", "h:29400", "0"));
  EXPECT_TRUE(head.several && head.hosts && !head.may_join);
  const NodeRole other = Role(Flags("2", "h:29400", "1"));
  EXPECT_TRUE(other.several && !other.hosts);
  EXPECT_EQ(other.endpoint, (Endpoint{"h", 29400}));
  EXPECT_EQ(other.part.node_rank, 1);
}

TEST(NodeRole, WithoutRanksWhoeverIsTheEndpointHostsUnlessAnotherDoes) {
  const NodeRole here = Role(Flags("2", "here:29400"));
  EXPECT_TRUE(here.hosts && here.may_join);
  EXPECT_FALSE(Role(Flags("2", "there:29400")).hosts);
  LaunchFlags flags = Flags("2", "there:29400");
  flags.rdzv_conf = "timeout=5,is_host=1";
  EXPECT_TRUE(Role(flags).hosts);
}

TEST(NodeRole, TheEndpointHasTorchrunsDefaultPorts) {
  EXPECT_EQ(Role(Flags("2", "h")).endpoint.port, 29400);
  LaunchFlags flags = Flags("2", nullptr, "1");
  flags.master_addr = "h";
  EXPECT_EQ(Role(flags).endpoint, (Endpoint{"h", 29500}));
  flags.master_port = "1234";
  EXPECT_EQ(Role(flags).endpoint, (Endpoint{"h", 1234}));
}

TEST(NodeRole, ElasticJobsHaveBounds) {
  const NodeRole role = Role(Flags("1:4", "h:1", "0"));
  EXPECT_EQ(role.min_nodes, 1);
  EXPECT_EQ(role.max_nodes, 4);
  EXPECT_TRUE(role.several);
}

TEST(NodeRole, RefusesWhatCannotMeet) {
  EXPECT_THAT(RoleRefusal(Flags("2")), HasSubstr("--rdzv-endpoint HOST:PORT"));
  EXPECT_THAT(RoleRefusal(Flags("2", "h:0", "0")), HasSubstr("port 0"));
  EXPECT_THAT(RoleRefusal(Flags("2", "h:x", "0")), HasSubstr("--rdzv-endpoint"));
  EXPECT_THAT(RoleRefusal(Flags("2", "h:1", "2")), HasSubstr("go from 0 to 1"));
  EXPECT_THAT(RoleRefusal(Flags("2", "h:1", "-1")), HasSubstr("--node-rank"));
  EXPECT_THAT(RoleRefusal(Flags("0", "h:1")), HasSubstr("--nnodes"));
  EXPECT_THAT(RoleRefusal(Flags(nullptr, nullptr, "1")), HasSubstr("--node-rank"));
}

TEST(NodeRole, TheSameCommandMakesTheSameClaim) {
  EXPECT_EQ(Role(Flags("2", "h:1", "0")).claim, Role(Flags("2", "h:1", "1")).claim);
  LaunchFlags named = Flags("2", "h:1", "0");
  named.rdzv_id = "run7";
  EXPECT_EQ(Role(named).claim, "--rdzv-id run7");
  named.rdzv_id = "none";  // torchrun's default
  EXPECT_EQ(Role(named).claim, "train.py");
  EXPECT_EQ(Role(Flags(), Slurm(0, 2)).claim, "Slurm job 4711");
}

TEST(NodeRole, NodesOfASchedulerBeyondTheJobsAreItsSpares) {
  EXPECT_TRUE(Role(Flags("2"), Slurm(0, 3)).hosts);
  const NodeRole spare = Role(Flags("2"), Slurm(2, 3));
  EXPECT_FALSE(spare.hosts);
  EXPECT_FALSE(spare.may_join);
  EXPECT_EQ(spare.part.node_rank, -1);
}

TEST(NodeRole, ASchedulerSaysAllOfIt) {
  const NodeRole role = Role(Flags(), Slurm(1, 3));
  EXPECT_EQ(role.max_nodes, 3);
  EXPECT_FALSE(role.hosts);
  EXPECT_TRUE(role.in_scheduler);
  EXPECT_EQ(role.endpoint, (Endpoint{"n1", PortForJob("4711")}));
  EXPECT_EQ(role.part.node, "n2");
  EXPECT_EQ(role.part.node_rank, 1);
  EXPECT_EQ(role.part.topology, "s0.n1");
  EXPECT_THAT(role.nodes, ElementsAre("n1", "n2", "n3"));
}

TEST(NodeRole, FlagsCountMoreThanAScheduler) {
  EXPECT_FALSE(Role(Flags("1"), Slurm(1, 3)).several);
  LaunchFlags standalone = Flags();
  standalone.standalone = true;
  EXPECT_FALSE(Role(standalone, Slurm(1, 3)).several);
  EXPECT_TRUE(Role(Flags(nullptr, "h:1", "0"), Slurm(1, 3)).hosts);
}

TEST(NodeRole, ABatchScriptIsToldToUseSrun) {
  NodeIdentity script = Slurm(0, 2);
  script.on_every_node = false;
  EXPECT_THAT(RoleRefusal(Flags(), script), HasSubstr("srun trainctl launch"));
  EXPECT_FALSE(Role(Flags("1"), script).several);
}

TEST(NodeRole, AListOfNodesMustHoldThisOne) {
  const std::vector<ListedNode> list = {{"n7", 0}, {"here", 4}, {"n9", 2}};
  const NodeRole role = Role(Flags(), {}, list);
  EXPECT_TRUE(role.several && role.hosts);
  EXPECT_EQ(role.max_nodes, 3);
  EXPECT_EQ(role.part.node, "here");
  EXPECT_EQ(role.part.slots, 4);
  EXPECT_THAT(role.nodes, ElementsAre("n7", "here", "n9"));
  EXPECT_THAT(role.invited, ::testing::SizeIs(3));
  EXPECT_THAT(RoleRefusal(Flags(), {}, {{"n7", 0}, {"n8", 0}}), HasSubstr("none of them"));
  EXPECT_EQ(Role(Flags("1:2"), {}, list).max_nodes, 2);
}

TEST(NodeRole, OneListedNodeIsOneNode) {
  EXPECT_FALSE(Role(Flags(), {}, {{"here", 2}}).several);
  EXPECT_THAT(Role(Flags(), {}, {{"here", 2}}).invited, IsEmpty());
}

}  // namespace
}  // namespace trainctl
