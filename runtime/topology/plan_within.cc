#include <algorithm>
#include <numeric>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "runtime/topology/pcie_speed.h"
#include "runtime/topology/plan_parts.h"

namespace trainctl {
namespace {

// One NVLink, one way, as NCCL reckons it.
double NvlinkGigabytes(int sm) {
  return sm >= 100 ? 40.1 : sm >= 90 ? 20.6 : sm >= 86 ? 12 : sm >= 60 ? 20 : 0;
}

double PcieGigabytes(const Gpu& gpu) {
  // An idle GPU slows its link down, so that the best generation is the one to reckon with.
  return PcieGigabytesPerSecond(std::max(gpu.pcie.generation, gpu.pcie.most_generation),
                                gpu.pcie.width > 0 ? gpu.pcie.width : gpu.pcie.most_width);
}

int Distance(const Topology& topology, const Unit& a, const Unit& b) {
  const Link* link = FindLink(topology, DeviceName(*a.gpu), DeviceName(*b.gpu));
  if (a.gpu == b.gpu || (link != nullptr && link->nvlinks > 0)) {
    return 0;
  }
  constexpr int kByPath[] = {1, 2, 3, 4, 6, 5};  // a link between sockets costs most
  return kByPath[static_cast<int>(link == nullptr ? PciPath::kUnknown : link->path)];
}

int RingLength(const Topology& topology, const std::vector<Unit>& ring) {
  int length = 0;
  for (size_t i = 0; i < ring.size(); ++i) {
    length += Distance(topology, ring[i], ring[(i + 1) % ring.size()]);
  }
  return length;
}

// How two neighbours of a ring reach each other.
struct Edge {
  Transport transport = Transport::kSharedMemory;
  double gigabytes = 0;
  std::string why;
};

Edge NvlinkEdge(const Unit& a, const Unit& b, int links) {
  return {Transport::kNvlink,
          links * std::min(NvlinkGigabytes(a.gpu->sm), NvlinkGigabytes(b.gpu->sm)),
          absl::StrCat(links, links == 1 ? " NVLink" : " NVLinks")};
}

Edge EdgeBetween(const Topology& topology, const Unit& a, const Unit& b) {
  const double pcie = std::min(PcieGigabytes(*a.gpu), PcieGigabytes(*b.gpu));
  if (a.slice != nullptr || b.slice != nullptr) {
    return {Transport::kSharedMemory, pcie / 2, "MIG slices have no access to each other's memory"};
  }
  if (a.gpu->switch_nvlinks > 0 && b.gpu->switch_nvlinks > 0) {
    Edge edge = NvlinkEdge(a, b, std::min(a.gpu->switch_nvlinks, b.gpu->switch_nvlinks));
    edge.transport = Transport::kNvSwitch;
    return edge;
  }
  const Link* link = FindLink(topology, DeviceName(*a.gpu), DeviceName(*b.gpu));
  if (link == nullptr) {
    return {Transport::kSharedMemory, pcie / 2, "nothing is known of the way between them"};
  }
  if (link->nvlinks > 0) {
    return NvlinkEdge(a, b, link->nvlinks);
  }
  if (link->p2p != PeerAccess::kOk && link->p2p != PeerAccess::kUnknown) {
    return {Transport::kSharedMemory, pcie / 2,
            absl::StrCat("the driver says that they have no access to each other (",
                         WordOf(link->p2p), ")")};
  }
  // NCCL's own limit: beyond it, copies from peer to peer are slower than through memory.
  const bool amd_pair = topology.gpus.size() <= 2 && absl::StrContains(topology.cpu, "AMD");
  if (link->path <= PciPath::kPxb || (amd_pair && link->path != PciPath::kUnknown)) {
    return {Transport::kPcie, pcie,
            absl::StrCat("peer access over PCIe (", WordOf(link->path), ")",
                         link->p2p == PeerAccess::kUnknown ? ", as far as the file tells" : "")};
  }
  return {Transport::kSharedMemory, pcie / 2,
          absl::StrCat("the way between them is ", WordOf(link->path),
                       ", where NCCL copies through memory")};
}

}  // namespace

bool IsUsable(const Gpu& gpu) {
  return gpu.problem.empty() &&
         (gpu.fabric == FabricState::kNone || gpu.fabric == FabricState::kReady);
}

std::vector<Unit> UnitsOf(const Topology& topology) {
  std::vector<Unit> units;
  for (const Gpu& gpu : topology.gpus) {
    if (!IsUsable(gpu)) {
      continue;
    }
    if (!gpu.mig_enabled) {
      units.push_back({&gpu, nullptr});
    }
    for (const MigSlice& slice : gpu.mig) {
      units.push_back({&gpu, &slice});
    }
  }
  return units;
}

std::vector<Unit> RingOrder(const Topology& topology, std::string* reason) {
  std::vector<Unit> by_index = UnitsOf(topology);
  const int length = RingLength(topology, by_index);
  const bool switched = std::all_of(by_index.begin(), by_index.end(),
                                    [](const Unit& unit) { return unit.gpu->switch_nvlinks > 0; });
  *reason = switched ? "by index, since every GPU is as near to every other"
                     : "by index, since no other order makes the ring shorter";
  if (by_index.size() < 3) {
    *reason = "by index";
  }
  if (by_index.size() < 3 || switched) {
    return by_index;
  }
  // Always on to the nearest: exact for pairs, switches and sockets, which is all that there is.
  std::vector<Unit> left = by_index;
  std::vector<Unit> ring = {left.front()};
  left.erase(left.begin());
  while (!left.empty()) {
    const auto nearest =
        std::min_element(left.begin(), left.end(), [&](const Unit& a, const Unit& b) {
          return Distance(topology, ring.back(), a) < Distance(topology, ring.back(), b);
        });
    ring.push_back(*nearest);
    left.erase(nearest);
  }
  if (RingLength(topology, ring) >= length) {
    return by_index;
  }
  *reason = "nearest neighbours first, so that the ring leaves each switch, bridge or socket once";
  return ring;
}

TransportChoice ChooseWithin(const Topology& topology, const std::vector<Unit>& ring) {
  if (ring.empty()) {
    return {Transport::kCpu, 0,
            topology.gpus.empty() ? "no GPU: workers train on CPUs and share memory"
                                  : "no GPU can be used (see the problems)"};
  }
  if (ring.size() == 1) {
    return {Transport::kNone, 0, "one GPU: nothing to exchange in the node"};
  }
  if (!topology.bad_peer_access.empty()) {
    double pcie = PcieGigabytes(*ring[0].gpu);
    for (const Unit& unit : ring) pcie = std::min(pcie, PcieGigabytes(*unit.gpu));
    return {Transport::kSharedMemory, pcie / 2,
            absl::StrCat("preflight: ", topology.bad_peer_access[0])};
  }
  Edge slowest;
  bool faster = false;  // than the slowest
  for (size_t i = 0; i < ring.size(); ++i) {
    const Edge edge = EdgeBetween(topology, ring[i], ring[(i + 1) % ring.size()]);
    if (i == 0) {
      slowest = edge;
    } else if (edge.transport < slowest.transport ||
               (edge.transport == slowest.transport && edge.gigabytes < slowest.gigabytes)) {
      faster = true;
      slowest = edge;
    } else {
      faster = faster || edge.transport > slowest.transport;
    }
  }
  TransportChoice choice{slowest.transport, slowest.gigabytes, slowest.why};
  if (slowest.transport == Transport::kNvSwitch) {
    choice.reason =
        absl::StrCat("each of ", ring.size(), " GPUs has ", slowest.why, " to switches");
  } else if (faster) {
    absl::StrAppend(&choice.reason, "; some neighbours are nearer, but the slowest decides");
  }
  return choice;
}

}  // namespace trainctl
