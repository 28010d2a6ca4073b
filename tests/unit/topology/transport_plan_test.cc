#include "runtime/topology/transport_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>

#include "runtime/base/file.h"
#include "runtime/json/json_text.h"
#include "runtime/topology/topology_text.h"

namespace trainctl {
namespace {

using ::testing::HasSubstr;

std::string Fixture(const std::string& name) {
  return std::string(TRAINCTL_SOURCE_DIR) + "/tests/unit/topology/fixtures/" + name;
}

Topology Read(const std::string& path) {
  const absl::StatusOr<std::string> text = ReadFile(path);
  EXPECT_TRUE(text.ok()) << text.status();
  const absl::StatusOr<Topology> topology = ParseAnyTopology(text.value_or(""), path);
  EXPECT_TRUE(topology.ok()) << topology.status();
  return topology.value_or(Topology());
}

TransportPlan PlanOf(const Topology& topology) {
  PlanRequest request;
  request.nodes = {topology};
  request.several_nodes = true;
  return PlanTransport(request);
}

const NcclSetting* Find(const TransportPlan& plan, const std::string& name) {
  for (const NcclSetting& setting : plan.settings) {
    if (setting.name == name) {
      return &setting;
    }
  }
  return nullptr;
}

class GoldenPlan : public testing::TestWithParam<const char*> {};

// The texts are made by `trainctl topo --from FIXTURE --explain`, and read before they are kept.
TEST_P(GoldenPlan, IsTheReviewedText) {
  const std::string name = GetParam();
  const absl::StatusOr<std::string> golden = ReadFile(Fixture(name + ".plan.txt"));
  ASSERT_TRUE(golden.ok()) << golden.status();
  EXPECT_EQ(ExplainPlan(PlanOf(Read(Fixture(name + ".yaml")))), *golden);
}

INSTANTIATE_TEST_SUITE_P(Fixtures, GoldenPlan,
                         testing::Values("4x4090", "2x3090", "8xa100_4roce", "8xh100_8ib",
                                         "2xh200_vm", "mig", "fabric_not_ready"));

// The same node after a preflight that saw a copy come out wrong.
TEST(TransportPlan, TurnsPeerAccessOffOnlyOnEvidence) {
  PlanRequest request;
  request.nodes = {Read(Fixture("2x3090.yaml"))};
  request.several_nodes = true;
  EXPECT_EQ(PlanTransport(request).within.transport, Transport::kNvlink);
  request.nodes[0].bad_peer_access = {"a copy from GPU0 to GPU1 came out wrong"};
  const absl::StatusOr<std::string> golden = ReadFile(Fixture("2x3090_bad_peer.plan.txt"));
  ASSERT_TRUE(golden.ok()) << golden.status();
  EXPECT_EQ(ExplainPlan(PlanTransport(request)), *golden);
  request.environment = {{"NCCL_P2P_DISABLE", "0"}};
  EXPECT_EQ(Find(PlanTransport(request), "NCCL_P2P_DISABLE")->who, NcclSetting::Who::kYours);
}

TEST(TransportPlan, TheUsersOwnSettingWinsAndIsNamed) {
  PlanRequest request;
  request.nodes = {Read(Fixture("8xa100_4roce.yaml"))};
  request.several_nodes = true;
  request.environment = {
      {"NCCL_DEBUG", "INFO"}, {"NCCL_IB_HCA", "mlx5_4"}, {"NCCL_NVLS_ENABLE", "0"}};
  const TransportPlan plan = PlanTransport(request);
  for (const auto& [name, value] : request.environment) {
    ASSERT_NE(Find(plan, name), nullptr) << name;
    EXPECT_EQ(Find(plan, name)->who, NcclSetting::Who::kYours) << name;
    EXPECT_EQ(Find(plan, name)->value, value);
  }
  EXPECT_THAT(Find(plan, "NCCL_IB_HCA")->reason, HasSubstr("yours wins over our =mlx5_0:1"));
  EXPECT_EQ(std::count_if(plan.settings.begin(), plan.settings.end(),
                          [](const NcclSetting& s) { return s.name == "NCCL_NVLS_ENABLE"; }),
            1);
}

TEST(TransportPlan, DeterministicMeansRingsAndNoSumsInTheSwitch) {
  PlanRequest request;
  request.nodes = {Read(Fixture("8xh100_8ib.yaml"))};
  request.deterministic = true;
  const TransportPlan plan = PlanTransport(request);
  EXPECT_EQ(Find(plan, "NCCL_ALGO")->value, "Ring");
  EXPECT_EQ(Find(plan, "NCCL_NVLS_ENABLE")->value, "0");
  EXPECT_EQ(plan.between.transport, Transport::kNone);
}

TEST(TransportPlan, AnOldNcclIsToldWhereTheRoutableAddressIs) {
  PlanRequest request;
  request.nodes = {Read(Fixture("8xa100_4roce.yaml"))};
  request.several_nodes = true;
  request.nccl_version = 21803;
  EXPECT_EQ(Find(PlanTransport(request), "NCCL_IB_GID_INDEX")->value, "3");
  request.nodes[0].nics[1].gids.clear();
  EXPECT_EQ(Find(PlanTransport(request), "NCCL_IB_GID_INDEX")->value, "");
  request.nccl_version = 22105;
  EXPECT_EQ(Find(PlanTransport(request), "NCCL_IB_GID_INDEX")->who, NcclSetting::Who::kLeftAlone);
}

TEST(TransportPlan, NodesWithoutACommonFabricUseTcp) {
  PlanRequest request;
  request.nodes = {Read(Fixture("8xh100_8ib.yaml")), Read(Fixture("8xa100_4roce.yaml"))};
  const TransportPlan plan = PlanTransport(request);
  EXPECT_EQ(plan.between.transport, Transport::kTcp);
  EXPECT_THAT(plan.between.reason, HasSubstr("nothing faster in common"));
  EXPECT_EQ(plan.nodes.size(), 2u);
  EXPECT_THAT(plan.problems, ::testing::Contains(HasSubstr("has other GPUs than h1")));
}

TEST(TransportPlan, AnAddressOfTheWrongTypeAndAPortThatIsDownAreNamed) {
  Topology node = Read(Fixture("8xa100_4roce.yaml"));
  for (Gid& gid : node.nics[0].gids) {
    gid.type = "RoCE v1";
  }
  node.nics[1].state = PortState::kDown;
  const TransportPlan plan = PlanOf(node);
  EXPECT_THAT(plan.problems, ::testing::Contains(HasSubstr("mlx5_0 has no RoCE v2 address")));
  EXPECT_THAT(plan.problems, ::testing::Contains(HasSubstr("mlx5_1 is down")));
  for (const LocalRank& rank : plan.nodes[0].ranks) {
    EXPECT_NE(rank.nic, "mlx5_1");
  }
}

TEST(TransportPlan, NothingAtAllIsANodeOfCpus) {
  const TransportPlan plan = PlanOf(Topology());
  EXPECT_EQ(plan.within.transport, Transport::kCpu);
  EXPECT_TRUE(plan.settings.empty());
  EXPECT_FALSE(JsonText(PlanDocument(plan)).empty());
}

// Files of real machines are not part of this tree; a folder of them can be given.
TEST(TransportPlan, HasAReasonForEverythingOnRealMachines) {
  const char* folder = ::getenv("TRAINCTL_TOPOLOGIES");
  if (folder == nullptr) {
    GTEST_SKIP() << "skipped, because TRAINCTL_TOPOLOGIES names no folder of topology files";
  }
  for (const std::string& name : FolderEntries(folder)) {
    if (name.substr(name.find_last_of('.') + 1) == "md") {
      continue;
    }
    const TransportPlan plan = PlanOf(Read(JoinPath(folder, name)));
    EXPECT_FALSE(plan.nodes[0].ranks.empty()) << name;
    for (const std::string& reason :
         {plan.within.reason, plan.between.reason, plan.nodes[0].order_reason,
          plan.nodes[0].binding_reason, plan.gradients.precision_reason,
          plan.gradients.bucket_reason}) {
      EXPECT_FALSE(reason.empty()) << name;
    }
    for (const NcclSetting& setting : plan.settings) {
      EXPECT_FALSE(setting.reason.empty()) << name;
    }
  }
}

}  // namespace
}  // namespace trainctl
