#include "runtime/topology/topology_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/json/json_text.h"

namespace trainctl {
namespace {

using ::testing::HasSubstr;

Topology Everything() {
  Topology t;
  t.node = "n1";
  t.cpu = "AMD EPYC: 9654";
  t.architecture = "x86_64";
  t.hypervisor = "kvm";
  t.driver = "570.86.15";
  t.cuda = "12.8";
  t.iommu = Answer::kNo;
  t.acs = Answer::kYes;
  t.acs_bridges = {"0000:3a:00.0"};
  t.peermem = Answer::kYes;
  t.shm_mib = 64;
  t.memlock_kib = -1;
  t.numa = {{0, "0-15,32-47", 128000}, {1, "16-31", 0}};
  Gpu gpu;
  gpu.index = 3;
  gpu.name = "NVIDIA \"X\" {1}: # no comment";
  gpu.uuid = "GPU-1";
  gpu.pci = "0000:3b:00.0";
  gpu.device_id = "10de:2330";
  gpu.numa = 0;
  gpu.sm = 90;
  gpu.memory_mib = 81559;
  gpu.pcie = {4, 8, 5, 16};
  gpu.switch_nvlinks = 18;
  gpu.fabric = FabricState::kInProgress;
  gpu.mig_enabled = true;
  gpu.mig = {{"MIG-1", "1g.10gb", 9984}};
  gpu.problem = "lost";
  t.gpus = {gpu};
  Nic nic;
  nic.name = "mlx5_0";
  nic.rdma = true;
  nic.pci = "0000:3c:00.0";
  nic.state = PortState::kActive;
  nic.rate_gbps = 2.5;
  nic.link_layer = LinkLayer::kEthernet;
  nic.netdev = "ens1";
  nic.gdr = Answer::kNo;
  nic.gids = {{3, "::ffff:10.0.0.1", "RoCE v2", "ens1"}};
  t.nics = {nic};
  t.links = {{"GPU3", "mlx5_0", PciPath::kPix, 0, PeerAccess::kUnknown}};
  t.problems = {"a\nb"};
  return t;
}

TEST(TopologyText, JsonAndYamlAreReadBackAsTheyWereWritten) {
  const nlohmann::ordered_json document = TopologyDocument(Everything());
  for (const std::string& text : {JsonText(document), JsonText(document, 2), YamlText(document)}) {
    const absl::StatusOr<Topology> read = ParseAnyTopology(text, "t");
    ASSERT_TRUE(read.ok()) << read.status() << "\n" << text;
    EXPECT_EQ(TopologyDocument(*read), document) << text;
  }
}

TEST(TopologyText, AnEmptyNodeIsReadBack) {
  const nlohmann::ordered_json document = TopologyDocument(Topology());
  for (const std::string& text : {JsonText(document), YamlText(document)}) {
    const absl::StatusOr<Topology> read = ParseTopology(text, "t");
    ASSERT_TRUE(read.ok()) << read.status() << "\n" << text;
    EXPECT_EQ(TopologyDocument(*read), document);
  }
}

TEST(TopologyText, AFileNeedsNoMoreThanItKnows) {
  const absl::StatusOr<Topology> read =
      ParseTopology("schema: 1\ngpus: [{index: 0}, {index: 1}]\nplan: {any: thing}\n", "t.yaml");
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->gpus.size(), 2u);
}

TEST(TopologyText, RefusesWithOneMessageThatNamesThePlace) {
  const auto refusal = [](const std::string& text) {
    return std::string(ParseAnyTopology(text, "t.yaml").status().message());
  };
  EXPECT_THAT(refusal(""), HasSubstr("must be a mapping"));
  EXPECT_THAT(refusal("node: x"), HasSubstr("the key schema is missing"));
  EXPECT_THAT(refusal("schema: 2"), HasSubstr("but of schema 2"));
  EXPECT_THAT(refusal("schema: 1\ngpus: [{index: -1}]"),
              HasSubstr("t.yaml:2: gpus[0].index: found \"-1\", expected a whole number from 0"));
  EXPECT_THAT(refusal("schema: 1\ngpus: [{name: x}]"), HasSubstr("gpus[0]: index is missing"));
  EXPECT_THAT(refusal("schema: 1\ngpus: {}"), HasSubstr("expected a list"));
  EXPECT_THAT(refusal("schema: 1\ngpu: []"), HasSubstr("unknown key \"gpu\""));
  EXPECT_THAT(refusal("schema: 1\ngpus: [{index: 0}, {index: 0}]"), HasSubstr("have index 0"));
  EXPECT_THAT(refusal("schema: 1\nnics: [{name: a}, {name: a}]"), HasSubstr("are called a"));
  EXPECT_THAT(refusal("schema: 1\nnics: [{name: a, rate_gbps: nan}]"), HasSubstr("Gb/s"));
  EXPECT_THAT(refusal("schema: 1\nnics: [{name: a, state: on}]"), HasSubstr("initializing"));
  EXPECT_THAT(refusal("schema: 1\nlinks: [{a: GPU0, b: GPU1}]"), HasSubstr("which is not listed"));
  EXPECT_THAT(refusal("schema: 1\ngpus: [{index: 0}]\nlinks: [{a: GPU0, b: GPU0}]"),
              HasSubstr("one end only"));
  EXPECT_THAT(refusal("schema: 1\nnuma_nodes: [{id: 0, cpus: 5-1}]"), HasSubstr("list of CPUs"));
  EXPECT_THAT(refusal("schema: 1\ngpus: &a []"), HasSubstr("anchors"));
}

}  // namespace
}  // namespace trainctl
