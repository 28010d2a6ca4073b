#include "runtime/topology/probe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "runtime/topology/sysfs.h"
#include "tests/unit/scratch.h"

namespace trainctl {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A recorded machine: files below a folder, as the kernel would show them.
class Recording {
 public:
  const std::string& root() const { return folder_.path(); }
  void File(const std::string& path, const std::string& text) {
    std::filesystem::create_directories(FolderOf(folder_.File(path)));
    folder_.Write(path, text);
  }
  void Link(const std::string& path, const std::string& to) {
    std::filesystem::create_directories(FolderOf(folder_.File(path)));
    std::filesystem::create_symlink(folder_.File(to), folder_.File(path));
  }
  // `place` is below sys/devices: "pci0000:3a/0000:3a:00.0/0000:3b:00.0".
  void Pci(const std::string& place, const std::string& device_class, const std::string& vendor,
           const std::string& device, int numa) {
    const std::string folder = "sys/devices/" + place;
    const std::string address = place.substr(place.rfind('/') + 1);
    File(folder + "/class", device_class + "\n");
    File(folder + "/vendor", vendor + "\n");
    File(folder + "/device", device + "\n");
    File(folder + "/numa_node", std::to_string(numa) + "\n");
    File(folder + "/current_link_speed", "16.0 GT/s PCIe\n");
    File(folder + "/current_link_width", "8\n");
    File(folder + "/max_link_speed", "32.0 GT/s PCIe\n");
    File(folder + "/max_link_width", "16\n");
    Link("sys/bus/pci/devices/" + address, folder);
  }
  // Configuration space with the capability ACS at 0x148, behind another one.
  void Acs(const std::string& place, char control) {
    std::string config(4096, '\0');
    config[0x100] = 1;
    config[0x102] = 1;
    config[0x103] = 0x14;
    config[0x102] |= static_cast<char>(0x80);
    config[0x148] = 0x0d;
    config[0x148 + 6] = control;
    File("sys/devices/" + place + "/config", config);
  }

 private:
  Scratch folder_;
};

constexpr const char* kSwitch = "pci0000:3a/0000:3a:00.0/0000:3b:00.0";

// Two GPUs and an RDMA NIC below one switch, a virtio NIC beside it.
void Machine(Recording* recording) {
  recording->File("sys/devices/system/node/node0/cpulist", "0-3\n");
  recording->File("sys/devices/system/node/node0/meminfo", "Node 0 MemTotal:   2097152 kB\n");
  recording->File("sys/devices/system/node/node1/cpulist", "4-7\n");
  recording->File("proc/cpuinfo",
                  "processor : 0\nmodel name\t: Some CPU\nflags\t\t: fpu hypervisor sse\n");
  recording->File("sys/class/dmi/id/sys_vendor", "QEMU\n");
  const std::string top(kSwitch);
  recording->Pci(top + "/0000:3c:00.0/0000:3d:00.0", "0x030200", "0x10de", "0x2684", 0);
  recording->Pci(top + "/0000:3c:01.0/0000:3e:00.0", "0x030000", "0x10de", "0x2684", 0);
  recording->Pci(top + "/0000:3c:02.0/0000:3f:00.0", "0x020000", "0x15b3", "0x1021", 0);
  recording->Pci("pci0000:00/0000:00:03.0", "0x020000", "0x1af4", "0x1000", -1);
  const std::string rdma = "sys/class/infiniband/mlx5_0/";
  recording->Link(rdma + "device", "sys/devices/" + top + "/0000:3c:02.0/0000:3f:00.0");
  recording->File(rdma + "ports/1/state", "4: ACTIVE\n");
  recording->File(rdma + "ports/1/rate", "200 Gb/sec (4X HDR)\n");
  recording->File(rdma + "ports/1/link_layer", "Ethernet\n");
  recording->File(rdma + "ports/1/gids/0", "0000:0000:0000:0000:0000:0000:0000:0000\n");
  recording->File(rdma + "ports/1/gids/3", "0000:0000:0000:0000:0000:ffff:0a00:0001\n");
  recording->File(rdma + "ports/1/gid_attrs/types/3", "RoCE v2\n");
  recording->File(rdma + "ports/1/gid_attrs/ndevs/3", "ens1\n");
  recording->Link("sys/class/net/ens1/device", "sys/devices/" + top + "/0000:3c:02.0/0000:3f:00.0");
  recording->File("sys/devices/pci0000:00/0000:00:03.0/virtio1/features", "");
  recording->Link("sys/class/net/eth0/device", "sys/devices/pci0000:00/0000:00:03.0/virtio1");
  recording->File("sys/class/net/eth0/operstate", "up\n");
  recording->File("sys/class/net/eth0/speed", "25000\n");
  std::filesystem::create_directories(recording->root() + "/sys/class/net/lo");
}

absl::StatusOr<NvmlSeen> NoDriver() { return absl::UnavailableError("no driver library"); }

TEST(Probe, WithoutADriverShowsCpusNicsAndTheGpusOnTheBus) {
  Recording recording;
  Machine(&recording);
  const Topology seen = TopologyFrom(recording.root(), NoDriver(), VerbsSeen());
  EXPECT_EQ(seen.cpu, "Some CPU");
  EXPECT_EQ(seen.hypervisor, "QEMU");
  ASSERT_EQ(seen.numa.size(), 2u);
  EXPECT_EQ(seen.numa[0].cpus, "0-3");
  EXPECT_EQ(seen.numa[0].memory_mib, 2048);
  ASSERT_EQ(seen.gpus.size(), 2u);
  EXPECT_EQ(seen.gpus[0].device_id, "10de:2684");
  EXPECT_EQ(seen.gpus[0].numa, 0);
  EXPECT_EQ(seen.gpus[0].pcie.generation, 4);
  EXPECT_EQ(seen.gpus[0].pcie.most_width, 16);
  EXPECT_EQ(seen.gpus[0].problem, "no driver library");
  EXPECT_THAT(seen.problems, ElementsAre("no driver library"));
  EXPECT_EQ(FindLink(seen, "GPU0", "GPU1")->path, PciPath::kPix);
  EXPECT_EQ(FindLink(seen, "GPU0", "mlx5_0")->path, PciPath::kPix);
  EXPECT_EQ(FindLink(seen, "GPU0", "eth0")->path, PciPath::kSys);
}

TEST(Probe, AnRdmaPortAndItsInterfaceAreOneNic) {
  Recording recording;
  Machine(&recording);
  const Topology seen = TopologyFrom(recording.root(), NoDriver(), VerbsSeen());
  ASSERT_EQ(seen.nics.size(), 2u);
  EXPECT_EQ(seen.nics[0].name, "mlx5_0");
  EXPECT_EQ(seen.nics[0].rate_gbps, 200);
  EXPECT_EQ(seen.nics[0].state, PortState::kActive);
  EXPECT_EQ(seen.nics[0].netdev, "ens1");
  ASSERT_EQ(seen.nics[0].gids.size(), 1u);
  EXPECT_EQ(seen.nics[0].gids[0].index, 3);
  EXPECT_EQ(seen.nics[1].name, "eth0");
  EXPECT_EQ(seen.nics[1].rate_gbps, 25);
  EXPECT_EQ(seen.nics[1].pci, "0000:00:03.0");
}

TEST(Probe, TheDriverIsRightAboutGpusAndVerbsAboutPorts) {
  Recording recording;
  Machine(&recording);
  NvmlSeen driver;
  driver.driver = "570.86.15";
  Gpu gpu;
  gpu.pci = "0000:3e:00.0";  // the container has been given one of the two
  gpu.name = "NVIDIA GeForce RTX 4090";
  driver.gpus = {gpu};
  VerbsSeen verbs;
  verbs.ports = {{"mlx5_0", 1, PortState::kDown, LinkLayer::kEthernet, Answer::kYes, {}}};
  verbs.problems = {"mlx5_1 does not open"};
  const Topology seen = TopologyFrom(recording.root(), driver, verbs);
  ASSERT_EQ(seen.gpus.size(), 1u);
  EXPECT_EQ(seen.gpus[0].numa, 0);
  EXPECT_EQ(seen.gpus[0].pcie.width, 8);
  EXPECT_EQ(seen.nics[0].state, PortState::kDown);
  EXPECT_EQ(seen.nics[0].gdr, Answer::kYes);
  EXPECT_EQ(seen.nics[0].gids.size(), 1u);
  EXPECT_THAT(seen.problems, ElementsAre("mlx5_1 does not open"));
}

TEST(Probe, FindsTheBridgeThatSendsPeersToTheCpu) {
  Recording recording;
  Machine(&recording);
  const std::string top(kSwitch);
  for (const std::string& bridge :
       {std::string("pci0000:3a/0000:3a:00.0"), top, top + "/0000:3c:00.0", top + "/0000:3c:01.0",
        top + "/0000:3c:02.0"}) {
    recording.Pci(bridge, "0x060400", "0x1000", "0xc030", 0);
    recording.Acs(bridge, bridge == top + "/0000:3c:01.0" ? 0x1d : 0);
  }
  const Topology seen = TopologyFrom(recording.root(), NoDriver(), VerbsSeen());
  EXPECT_EQ(seen.acs, Answer::kYes);
  EXPECT_THAT(seen.acs_bridges, ElementsAre("0000:3c:01.0"));
}

TEST(Probe, WhatThisUserMayNotReadIsUnknownAndNotOff) {
  Recording recording;
  Machine(&recording);
  recording.File("sys/devices/pci0000:3a/0000:3a:00.0/config", std::string(64, '\0'));
  EXPECT_EQ(TopologyFrom(recording.root(), NoDriver(), VerbsSeen()).acs, Answer::kUnknown);
}

TEST(Probe, AnEmptyMachineIsATopologyToo) {
  Recording recording;
  const Topology seen = TopologyFrom(recording.root(), NoDriver(), VerbsSeen());
  EXPECT_TRUE(seen.gpus.empty() && seen.nics.empty() && seen.links.empty());
}

TEST(Probe, ThisMachineIsSeen) { EXPECT_FALSE(ProbeTopology().numa.empty()); }

TEST(VerbsProbe, WithoutTheLibraryThereIsNothingToSay) {
  const VerbsSeen seen = ProbeVerbs("libno-such-library.so.1");
  EXPECT_TRUE(seen.ports.empty() && seen.problems.empty());
}

}  // namespace
}  // namespace trainctl
