// What one node has for training, and how it is connected. A value: read from the machine, from our
// own file or from NCCL's, and the only thing that transport_plan.h looks at.
#ifndef TRAINCTL_RUNTIME_TOPOLOGY_TOPOLOGY_H_
#define TRAINCTL_RUNTIME_TOPOLOGY_TOPOLOGY_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace trainctl {

// What two devices have in common, nearest first, in the words of `nvidia-smi topo -m`.
enum class PciPath {
  kPix,      // at most one PCIe bridge or switch
  kPxb,      // several bridges, no CPU
  kPhb,      // a host bridge
  kNode,     // several host bridges of one NUMA node
  kSys,      // the link between sockets
  kUnknown,  // not to be seen
};

enum class Answer { kUnknown, kNo, kYes };

// What the driver says of reading and writing one GPU's memory from another.
enum class PeerAccess { kUnknown, kOk, kChipset, kGpu, kIoh, kDisabled, kUnsupported };

// Whether the fabric manager has set up the NVSwitches of this GPU.
enum class FabricState { kNone, kNotStarted, kInProgress, kReady, kFailed };

struct PcieLink {  // 0: unknown
  int generation = 0;
  int width = 0;
  int most_generation = 0;  // what card and slot could do
  int most_width = 0;
};

struct MigSlice {
  std::string uuid;
  std::string profile;  // "1g.10gb"
  int64_t memory_mib = 0;
};

struct Gpu {
  int index = 0;          // the driver's; unique
  std::string name;       // "NVIDIA H100 80GB HBM3"; empty: unknown
  std::string uuid;       // empty: unknown
  std::string pci;        // "0000:3b:00.0"; empty: unknown
  std::string device_id;  // "10de:2330"; empty: unknown
  int numa = -1;
  int sm = 0;  // compute capability 9.0 is 90; 0: unknown
  int64_t memory_mib = 0;
  PcieLink pcie;
  int switch_nvlinks = 0;  // active links to NVSwitches, hidden ones too
  FabricState fabric = FabricState::kNone;
  bool mig_enabled = false;
  std::vector<MigSlice> mig;
  std::string problem;  // why it cannot be used; empty: nothing known
};

enum class LinkLayer { kUnknown, kEthernet, kInfiniBand, kEfa };
enum class PortState { kUnknown, kDown, kInitializing, kArmed, kActive };

struct Gid {
  int index = 0;
  std::string address;  // "::ffff:10.0.0.1"
  std::string type;     // "IB", "RoCE v1", "RoCE v2"; empty: unknown
  std::string netdev;
};

// One port of an RDMA device, or an Ethernet interface that none belongs to.
struct Nic {
  std::string name;  // "mlx5_0", "mlx5_0:2" for a second port, "eth0"; unique
  int port = 1;
  bool rdma = false;
  std::string pci;
  std::string device_id;
  int numa = -1;
  PortState state = PortState::kUnknown;
  double rate_gbps = 0;  // 0: unknown
  LinkLayer link_layer = LinkLayer::kUnknown;
  std::string netdev;
  Answer gdr = Answer::kUnknown;  // it can read GPU memory
  std::vector<Gid> gids;
};

struct NumaNode {
  int id = 0;
  std::string cpus;  // "0-15,32-47"
  int64_t memory_mib = 0;
};

// Of two devices, named as DeviceName does. No pair is given twice.
struct Link {
  std::string a;
  std::string b;
  PciPath path = PciPath::kUnknown;
  int nvlinks = 0;  // direct ones
  PeerAccess p2p = PeerAccess::kUnknown;
};

struct Topology {
  std::string node;
  std::string cpu;           // model
  std::string architecture;  // "x86_64"
  std::string hypervisor;    // empty: none seen
  std::string driver;        // version; empty: none
  std::string cuda;          // newest CUDA that the driver serves, "13.0"
  Answer iommu = Answer::kUnknown;
  Answer acs = Answer::kUnknown;  // some bridge above a GPU or NIC sends peers' traffic to the CPU
  std::vector<std::string> acs_bridges;
  Answer peermem = Answer::kUnknown;
  std::optional<int64_t> shm_mib;      // size of /dev/shm
  std::optional<int64_t> memlock_kib;  // -1: unlimited
  std::vector<NumaNode> numa;
  std::vector<Gpu> gpus;  // by index
  std::vector<Nic> nics;
  std::vector<Link> links;
  // What the last preflight here saw of GPUs that do not reach each other's memory ("a copy from
  // GPU0 to GPU1 came out wrong"). Empty: nothing, or none was run.
  std::vector<std::string> bad_peer_access;
  std::vector<std::string> problems;  // what could not be seen or is wrong, for people
};

std::string DeviceName(const Gpu& gpu);  // "GPU3"
// In either order; nullptr: nothing is known of this pair.
const Link* FindLink(const Topology& topology, absl::string_view a, absl::string_view b);
// The NUMA node of a device that says it is on `numa`. Many virtual machines do not say (-1); where
// there is one node only, it is that one.
int NumaNodeOf(const Topology& topology, int numa);

// The words of files and tables.
const char* WordOf(PciPath path);  // "PIX" … "SYS", "?"
const char* WordOf(Answer answer);
const char* WordOf(PeerAccess access);
const char* WordOf(FabricState state);
const char* WordOf(LinkLayer layer);
const char* WordOf(PortState state);

// All values of an enumeration, for whoever reads words.
template <typename E>
struct EnumRange;
template <>
struct EnumRange<PciPath> {
  static constexpr PciPath kLast = PciPath::kUnknown;
};
template <>
struct EnumRange<Answer> {
  static constexpr Answer kLast = Answer::kYes;
};
template <>
struct EnumRange<PeerAccess> {
  static constexpr PeerAccess kLast = PeerAccess::kUnsupported;
};
template <>
struct EnumRange<FabricState> {
  static constexpr FabricState kLast = FabricState::kFailed;
};
template <>
struct EnumRange<LinkLayer> {
  static constexpr LinkLayer kLast = LinkLayer::kEfa;
};
template <>
struct EnumRange<PortState> {
  static constexpr PortState kLast = PortState::kActive;
};

}  // namespace trainctl

#endif  // TRAINCTL_RUNTIME_TOPOLOGY_TOPOLOGY_H_
