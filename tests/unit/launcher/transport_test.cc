#include "launcher/transport.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/json/json_text.h"
#include "runtime/topology/topology_text.h"

namespace trainctl {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

std::string Devices(const std::string& model, bool infiniband) {
  Topology node;
  Gpu gpu;
  gpu.name = model;
  gpu.uuid = "GPU-0";
  gpu.sm = 90;
  node.gpus = {gpu};
  if (infiniband) {
    Nic nic;
    nic.name = "mlx5_0";
    nic.rdma = true;
    nic.state = PortState::kActive;
    nic.link_layer = LinkLayer::kInfiniBand;
    nic.rate_gbps = 400;
    node.nics = {nic};
  }
  return JsonText(TopologyDocument(node));
}

const std::vector<NodeShare> kTwo = {{"n1", "m1", "10.0.0.1", 0, 1},
                                     {"n2", "m2", "10.0.0.2", 1, 1}};

TEST(Transports, NodesWithoutACommonKindOfPortAreKeptFromTheirOwn) {
  const JobSpec spec;
  Transports transports(spec);
  transports.Remember("n1", Devices("NVIDIA H100", true));
  EXPECT_EQ(transports.PlanFor(Epoch(0), kTwo), nullptr) << "of n2 nothing is known";
  transports.Remember("n2", Devices("NVIDIA A100", false));
  ASSERT_NE(transports.PlanFor(Epoch(1), kTwo), nullptr);
  EXPECT_THAT(transports.Settings(), Contains("NCCL_IB_DISABLE=1"));
  EXPECT_THAT(transports.TakeNews(), Contains(HasSubstr("n2 has other GPUs than n1")));
  EXPECT_THAT(transports.TakeNews(), IsEmpty());
  transports.Remember("n2", Devices("NVIDIA H100", true));
  ASSERT_NE(transports.PlanFor(Epoch(2), kTwo), nullptr);
  EXPECT_THAT(transports.Settings(), Not(Contains("NCCL_IB_DISABLE=1")));
}

TEST(Transports, OneNodeAndNonsenseHaveNoPlanBetweenNodes) {
  const JobSpec spec;
  Transports transports(spec);
  transports.Remember("n1", Devices("NVIDIA H100", true));
  transports.Remember("n2", "{nonsense");
  EXPECT_EQ(transports.PlanFor(Epoch(0), {kTwo[0]}), nullptr);
  EXPECT_EQ(transports.PlanFor(Epoch(1), kTwo), nullptr);
  EXPECT_THAT(transports.Settings(), IsEmpty());
}

}  // namespace
}  // namespace trainctl
