#include <algorithm>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "runtime/topology/plan_parts.h"

namespace trainctl {
namespace {

constexpr int64_t kLeastShmMib = 1024;
constexpr int64_t kLeastMemlockKib = 64 * 1024;

class Finder {
 public:
  Finder(const Topology& node, std::vector<std::string>* out)
      : node_(node), prefix_(node.node.empty() ? "" : absl::StrCat(node.node, ": ")), out_(out) {}

  void Gpus() {
    std::vector<std::string> unready, narrow;
    FabricState state = FabricState::kNone;
    std::set<std::string> models;
    for (const Gpu& gpu : node_.gpus) {
      const std::string name = DeviceName(gpu);
      if (!gpu.problem.empty()) {
        Add(absl::StrCat(name, ": ", gpu.problem));
      } else if (!IsUsable(gpu)) {
        unready.push_back(name);
        state = gpu.fabric;
      }
      if (gpu.mig_enabled && gpu.mig.empty()) {
        Add(absl::StrCat(name, " is in MIG mode and has no slice; make one (nvidia-smi mig -cgi)"));
      }
      if (gpu.pcie.width > 0 && gpu.pcie.width < gpu.pcie.most_width) {
        narrow.push_back(absl::StrCat(name, " x", gpu.pcie.width, " of x", gpu.pcie.most_width));
      }
      if (!gpu.name.empty()) {
        models.insert(gpu.name);
      }
    }
    if (!unready.empty()) {
      Add(absl::StrCat("the fabric manager has not set up the NVSwitches (", WordOf(state), ") of ",
                       absl::StrJoin(unready, ", "),
                       ", which CUDA therefore refuses; start nvidia-fabricmanager of the "
                       "driver's version, and see its log"));
    }
    if (!narrow.empty()) {
      Add(absl::StrCat("PCIe links are narrower than card and slot allow: ",
                       absl::StrJoin(narrow, ", "), "; reseat the card, or see its slot"));
    }
    if (models.size() > 1) {
      Add(absl::StrCat("different GPUs (", absl::StrJoin(models, ", "),
                       "): the slowest sets the pace"));
    }
  }

  void Memory(bool rdma) {
    if (UnitsOf(node_).size() > 1 && node_.shm_mib.has_value() && *node_.shm_mib < kLeastShmMib) {
      Add(absl::StrCat("/dev/shm has ", *node_.shm_mib, " MiB, and NCCL and data loaders need ",
                       kLeastShmMib, "; start the container with --shm-size=8g"));
    }
    if (rdma && node_.memlock_kib.has_value() && *node_.memlock_kib >= 0 &&
        *node_.memlock_kib < kLeastMemlockKib) {
      Add(absl::StrCat("only ", *node_.memlock_kib,
                       " KiB may be locked in memory, and RDMA locks its buffers; ulimit -l "
                       "unlimited, or --ulimit memlock=-1 for a container"));
    }
  }

  void Bus() {
    if (node_.acs == Answer::kYes && node_.gpus.size() > 1) {
      Add(absl::StrCat("ACS sends traffic between peers through the CPU at ",
                       absl::StrJoin(node_.acs_bridges, ", "),
                       "; turn it off in the firmware, or by setpci"));
    }
    if (node_.iommu == Answer::kYes && node_.hypervisor.empty() && node_.gpus.size() > 1) {
      Add("the IOMMU translates, which slows or breaks peer access; boot with iommu=pt");
    }
  }

  void Ports() {
    for (const Nic& nic : node_.nics) {
      if (nic.rdma && nic.state != PortState::kActive && nic.state != PortState::kUnknown) {
        Add(absl::StrCat("RDMA port ", nic.name, " is ", WordOf(nic.state), " and not used"));
      }
    }
    bool gdr = false;
    const std::vector<const Nic*> ports = ChosenPorts(node_);
    for (const Nic* port : ports) {
      gdr = gdr || port->gdr != Answer::kNo;
      const bool routable = std::any_of(port->gids.begin(), port->gids.end(),
                                        [](const Gid& gid) { return gid.type == "RoCE v2"; });
      if (port->link_layer == LinkLayer::kEthernet && !port->gids.empty() && !routable) {
        Add(absl::StrCat("RDMA port ", port->name, " has no RoCE v2 address; give its interface ",
                         port->netdev, " an IP address, and see cma_roce_mode"));
      }
    }
    if (!ports.empty() && !gdr) {
      Add("no GPUDirect RDMA: data goes through the CPU's memory; modprobe nvidia_peermem, or use "
          "the open driver");
    }
  }

 private:
  void Add(absl::string_view text) { out_->push_back(absl::StrCat(prefix_, text)); }

  const Topology& node_;
  std::string prefix_;
  std::vector<std::string>* out_;
};

std::string ModelsOf(const Topology& node) {
  std::set<std::string> models;
  for (const Gpu& gpu : node.gpus) {
    models.insert(gpu.name);
  }
  return absl::StrJoin(models, ", ");
}

}  // namespace

std::vector<std::string> FindProblems(const PlanRequest& request, const TransportChoice& between) {
  std::vector<std::string> problems;
  const bool rdma =
      between.transport == Transport::kRoce || between.transport == Transport::kInfiniBand;
  for (const Topology& node : request.nodes) {
    for (const std::string& bad : node.bad_peer_access) {
      problems.push_back(absl::StrCat(
          node.node, node.node.empty() ? "" : ": ", bad,
          ": the GPUs do not reach each other's memory; until ACS, IOMMU (iommu=pt) and driver are "
          "in order, data goes through the CPU's"));
    }
    Finder finder(node, &problems);
    finder.Gpus();
    finder.Memory(rdma);
    finder.Bus();
    if (between.transport != Transport::kNone) {
      finder.Ports();
    }
    if (ModelsOf(node) != ModelsOf(request.nodes[0])) {
      problems.push_back(absl::StrCat(node.node, " has other GPUs than ", request.nodes[0].node,
                                      ": the slowest sets the pace"));
    }
  }
  if (between.transport == Transport::kEfa) {
    problems.push_back("EFA needs the plugin aws-ofi-nccl, without which NCCL falls back to TCP");
  }
  return problems;
}

}  // namespace trainctl
