#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "launcher/topology_picture.h"
#include "launcher/topology_table.h"

namespace trainctl {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

Topology TwoCards() {
  Topology node;
  node.node = "n<1>";
  node.numa = {{0, "0-3", 2048}, {1, "4-7", 0}};
  for (int i = 0; i < 2; ++i) {
    Gpu gpu;
    gpu.index = i;
    gpu.numa = i;
    gpu.name = i == 0 ? "NVIDIA GeForce RTX 4090" : "NVIDIA Card & Co";
    gpu.switch_nvlinks = 0;
    node.gpus.push_back(gpu);
  }
  Nic nic;
  nic.name = "mlx5_0";
  nic.rdma = true;
  nic.numa = 0;
  nic.state = PortState::kDown;
  node.nics = {nic};
  node.links = {{"GPU0", "GPU1", PciPath::kSys, 0, PeerAccess::kOk},
                {"GPU0", "mlx5_0", PciPath::kPix, 0, PeerAccess::kUnknown}};
  return node;
}

TEST(TopologyTable, ShowsWaysAndWhatACardCanDoOnlyIfItIsKnown) {
  const std::string table = TopologyTable(TwoCards());
  EXPECT_THAT(table, HasSubstr("GPU0     X    SYS   PIX     0-3   0\n"));
  EXPECT_THAT(table, HasSubstr("GPU1    SYS    X    ?       4-7   1\n"));
  EXPECT_THAT(table, HasSubstr("165.2"));
  EXPECT_THAT(table, HasSubstr("Card & Co         ?       ?   ?     n/a           n/a"));
}

TEST(TopologyTable, DirectNvlinksWinOverThoseToSwitchesAndBothOverPcie) {
  Topology node = TwoCards();
  node.gpus[0].switch_nvlinks = 18;
  EXPECT_EQ(ConnectionWord(node, "GPU0", "GPU1"), "SYS");
  node.gpus[1].switch_nvlinks = 12;
  EXPECT_EQ(ConnectionWord(node, "GPU1", "GPU0"), "NV12");
  node.links[0].nvlinks = 4;
  EXPECT_EQ(ConnectionWord(node, "GPU0", "GPU1"), "NV4");
  EXPECT_EQ(ConnectionWord(node, "GPU1", "mlx5_0"), "?");
}

TEST(TopologyPicture, NamesEveryDeviceAndEscapesWhatOthersWrote) {
  const std::string picture = TopologyPicture(TwoCards());
  for (const char* text : {">GPU0<", ">GPU1<", ">mlx5_0<", "PCIe switch", "n&lt;1&gt;",
                           "Card &amp; Co", "stroke-dasharray", "CPUs 4-7"}) {
    EXPECT_THAT(picture, HasSubstr(text));
  }
  EXPECT_THAT(picture, Not(HasSubstr("n<1>")));
  EXPECT_THAT(TopologyPicture(Topology()), HasSubstr("</svg>"));
}

}  // namespace
}  // namespace trainctl
