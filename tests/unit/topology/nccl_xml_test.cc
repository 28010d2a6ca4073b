#include "runtime/topology/nccl_xml.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/topology/xml_tree.h"

namespace trainctl {
namespace {

using ::testing::HasSubstr;

// Two switches, a GPU and a NIC below each, a bridge of four NVLinks between the GPUs.
constexpr const char* kBridged = R"(<?xml version="1.0"?>
<!-- written for this test -->
<system version="1">
  <cpu numaid="0" affinity="0000ffff" arch="x86_64" vendor="AuthenticAMD">
    <pci busid="0000:40:00.0" class="0x060400" link_speed="16 GT/s" link_width="16">
      <pci busid="0000:41:00.0" class="0x030200" vendor="0x10de" device="0x2204" link_speed="16 GT/s" link_width="16">
        <gpu dev="1" sm="86" rank="1" gdr="1"><nvlink target="0000:21:00.0" count="4" tclass="0x030200"/></gpu>
      </pci>
      <pci busid="0000:42:00.0" class="0x020700" link_speed="" link_width="0">
        <nic><net name="mlx5_0" dev="0" speed="200000" port="1" guid="0x1234" gdr="1"/></nic>
      </pci>
    </pci>
    <pci busid="0000:20:00.0" class="0x060400">
      <pci busid="0000:21:00.0" class="0x030200" vendor="0x10de" device="0x2204">
        <gpu dev="0" sm="86"><nvlink target="0000:41:00.0" count="4" tclass="0x030200"/></gpu>
      </pci>
    </pci>
  </cpu>
</system>)";

TEST(NcclXml, ReadsGpusNicsPathsAndBridges) {
  const absl::StatusOr<Topology> read = ParseNcclXml(kBridged, "t.xml");
  ASSERT_TRUE(read.ok()) << read.status();
  ASSERT_EQ(read->gpus.size(), 2u);
  EXPECT_EQ(read->gpus[0].pci, "0000:21:00.0");
  EXPECT_EQ(read->gpus[1].sm, 86);
  EXPECT_EQ(read->gpus[1].device_id, "10de:2204");
  EXPECT_EQ(read->gpus[1].pcie.generation, 4);
  ASSERT_EQ(read->nics.size(), 1u);
  EXPECT_EQ(read->nics[0].link_layer, LinkLayer::kInfiniBand);
  EXPECT_EQ(read->nics[0].rate_gbps, 200);
  EXPECT_EQ(read->nics[0].gdr, Answer::kYes);
  EXPECT_EQ(read->numa[0].cpus, "0-15");
  EXPECT_EQ(FindLink(*read, "GPU1", "GPU0")->nvlinks, 4);
  EXPECT_EQ(FindLink(*read, "GPU1", "GPU0")->path, PciPath::kPhb);
  EXPECT_EQ(FindLink(*read, "GPU1", "mlx5_0")->path, PciPath::kPix);
}

TEST(NcclXml, BearsHiddenSwitchesAndMissingNuma) {
  const absl::StatusOr<Topology> read = ParseNcclXml(
      R"(<system version="1"><cpu numaid="-1" arch="x86_64">
           <pci busid="0000:00:06.0" class="0x030200" link_width="0"><gpu dev="0" sm="90">
             <nvlink target="fffffff:ff:ff.0" count="18" tclass="0x068000"/></gpu></pci>
           <nic><net name="eth0" dev="0" speed="10000" port="0" guid="0x0" gdr="0"/></nic>
           <pci busid="0000:00:07.0"><gpu dev="1"/></pci>
         </cpu></system>)",
      "t.xml");
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->gpus[0].switch_nvlinks, 18);
  EXPECT_EQ(read->gpus[0].numa, -1);
  EXPECT_EQ(read->gpus[1].sm, 0);
  EXPECT_TRUE(read->numa.empty());
  EXPECT_EQ(read->nics[0].name, "eth0");
  EXPECT_FALSE(read->nics[0].rdma);
  EXPECT_EQ(FindLink(*read, "GPU0", "GPU1")->path, PciPath::kPhb);
}

TEST(NcclXml, NumbersGpusByAddressWhereTheFileDoesNot) {
  const absl::StatusOr<Topology> read = ParseNcclXml(
      R"(<system><cpu numaid="0"><pci busid="0000:10:1d.0" class="0x030200"/></cpu>
         <cpu numaid="1"><pci busid="0000:10:1b.0" class="0x020000" vendor="0x1d0f" device="0xefa0"/>
         <pci busid="0000:10:1c.0" class="0x030200"/></cpu></system>)",
      "t.xml");
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->gpus[0].pci, "0000:10:1c.0");
  EXPECT_EQ(read->gpus[0].index, 0);
  EXPECT_EQ(read->nics[0].link_layer, LinkLayer::kEfa);
  EXPECT_EQ(FindLink(*read, "GPU0", "GPU1")->path, PciPath::kSys);
}

TEST(NcclXml, RefusesWhatIsNoTopology) {
  const auto refusal = [](const std::string& text) {
    return std::string(ParseNcclXml(text, "t.xml").status().message());
  };
  EXPECT_THAT(refusal("<html></html>"), HasSubstr("t.xml:1: expected <system>"));
  EXPECT_THAT(refusal("<system>\n<cpu></system>"), HasSubstr("t.xml:2: expected </cpu>"));
  EXPECT_THAT(refusal("<system a=1/>"), HasSubstr("not in quotes"));
  EXPECT_THAT(refusal("<system"), HasSubstr("expected"));
  EXPECT_THAT(refusal("<!DOCTYPE x><system/>"), HasSubstr("expected a name"));
  EXPECT_THAT(refusal("<system/><system/>"), HasSubstr("something follows"));
  EXPECT_THAT(refusal("<!-- "), HasSubstr("no --> follows"));
  EXPECT_THAT(refusal("<system><cpu><pci class=\"0x030200\"/></cpu></system>"), HasSubstr("busid"));
  EXPECT_THAT(
      refusal("<system><cpu><pci class=\"0x030200\" busid=\"1:1.0\"/><pci class=\"0x030200\" "
              "busid=\"1:1.0\"/></cpu></system>"),
      HasSubstr("two GPUs have the PCI address"));
  std::string deep;
  for (int i = 0; i < 100; ++i) {
    deep += "<system>";
  }
  EXPECT_THAT(refusal(deep), HasSubstr("levels deep"));
  EXPECT_THAT(refusal(std::string(kLargestXml + 1, ' ')), HasSubstr("larger than"));
}

TEST(NcclXml, EveryCutOfAFileIsRefusedOrReadWithoutHarm) {
  const std::string whole = kBridged;
  for (size_t size = 0; size < whole.size() - 1; ++size) {
    EXPECT_FALSE(ParseNcclXml(whole.substr(0, size), "t.xml").ok()) << size;
  }
}

}  // namespace
}  // namespace trainctl
