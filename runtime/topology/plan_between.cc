#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"
#include "runtime/topology/plan_parts.h"

namespace trainctl {
namespace {

Transport TransportOf(LinkLayer layer) {
  switch (layer) {
    case LinkLayer::kInfiniBand:
      return Transport::kInfiniBand;
    case LinkLayer::kEfa:
      return Transport::kEfa;
    case LinkLayer::kEthernet:
      return Transport::kRoce;
    case LinkLayer::kUnknown:
      break;
  }
  return Transport::kTcp;
}

bool MayCarry(const Nic& nic) {  // NCCL's file names no state
  return nic.state == PortState::kActive || nic.state == PortState::kUnknown;
}

double Sum(const std::vector<const Nic*>& ports) {
  double gbps = 0;
  for (const Nic* port : ports) {
    gbps += port->rate_gbps;
  }
  return gbps;
}

std::string Rate(double gbps) {
  return gbps > 0 ? absl::StrCat(" of ", gbps, " Gb/s") : " of unknown rate";
}

TransportChoice Tcp(const std::vector<Topology>& nodes, std::string why) {
  double slowest = -1;
  for (const Topology& node : nodes) {
    double fastest = 0;
    for (const Nic& nic : node.nics) {
      if (nic.link_layer == LinkLayer::kEthernet && MayCarry(nic)) {
        fastest = std::max(fastest, nic.rate_gbps);
      }
    }
    slowest = slowest < 0 ? fastest : std::min(slowest, fastest);
  }
  absl::StrAppend(&why, slowest > 0 ? absl::StrCat("; Ethernet", Rate(slowest))
                                    : "; the rate of the interfaces is not known");
  return {Transport::kTcp, slowest / 8, std::move(why)};
}

// Devices that are as near to the GPU as any, in turn.
const Nic* NearestPort(const Topology& topology, const std::vector<const Nic*>& ports,
                       const Gpu& gpu, std::map<const Nic*, int>* used, PciPath* path) {
  const auto path_to = [&](const Nic* port) {
    const Link* link = FindLink(topology, DeviceName(gpu), port->name);
    return link == nullptr ? PciPath::kUnknown : link->path;
  };
  const auto best = std::min_element(ports.begin(), ports.end(), [&](const Nic* a, const Nic* b) {
    return std::make_pair(path_to(a), (*used)[a]) < std::make_pair(path_to(b), (*used)[b]);
  });
  if (best == ports.end()) {
    return nullptr;
  }
  ++(*used)[*best];
  *path = path_to(*best);
  return *best;
}

std::string NicReason(const std::vector<LocalRank>& ranks, size_t ports) {
  PciPath farthest = PciPath::kPix;
  std::set<std::string> used;
  for (const LocalRank& rank : ranks) {
    farthest = std::max(farthest, rank.nic_path);
    used.insert(rank.nic);
  }
  return absl::StrCat("the nearest port for each GPU, in turn among equals: ", used.size(), " of ",
                      ports, " used, none farther than ", WordOf(farthest));
}

}  // namespace

std::vector<const Nic*> ChosenPorts(const Topology& topology) {
  std::map<LinkLayer, std::vector<const Nic*>> by_layer;
  for (const Nic& nic : topology.nics) {
    if (nic.rdma && MayCarry(nic) && nic.link_layer != LinkLayer::kUnknown) {
      by_layer[nic.link_layer].push_back(&nic);
    }
  }
  std::vector<const Nic*> best;
  for (auto& [layer, ports] : by_layer) {
    double fastest = 0;
    for (const Nic* port : ports) {
      fastest = std::max(fastest, port->rate_gbps);
    }
    ports.erase(std::remove_if(ports.begin(), ports.end(),
                               [&](const Nic* port) { return port->rate_gbps < fastest; }),
                ports.end());
    if (best.empty() || Sum(ports) > Sum(best)) {
      best = ports;
    }
  }
  return best;
}

TransportChoice ChooseBetween(const std::vector<Topology>& nodes) {
  std::vector<const Nic*> weakest;
  for (const Topology& node : nodes) {
    const std::vector<const Nic*> ports = ChosenPorts(node);
    if (ports.empty()) {
      return Tcp(nodes, absl::StrCat("no active RDMA port on ",
                                     node.node.empty() ? "this node" : node.node));
    }
    if (!weakest.empty() && weakest[0]->link_layer != ports[0]->link_layer) {
      return Tcp(nodes, absl::StrCat("the nodes have nothing faster in common: ",
                                     WordOf(weakest[0]->link_layer), " here, ",
                                     WordOf(ports[0]->link_layer), " on ", node.node));
    }
    if (weakest.empty() || Sum(ports) < Sum(weakest)) {
      weakest = ports;
    }
  }
  const Nic& port = *weakest[0];
  return {
      TransportOf(port.link_layer), Sum(weakest) / 8,
      absl::StrCat(weakest.size(), weakest.size() == 1 ? " active " : " active ",
                   port.link_layer == LinkLayer::kEthernet ? "RDMA ports over Ethernet"
                                                           : WordOf(port.link_layer),
                   port.link_layer == LinkLayer::kEthernet ? "" : " ports", Rate(port.rate_gbps))};
}

NodePlan PlanNode(const Topology& topology, const std::vector<Unit>& ring,
                  const std::string& order_reason, bool with_nics) {
  NodePlan plan;
  plan.node = topology.node;
  plan.order_reason = order_reason;
  const std::vector<const Nic*> ports =
      with_nics ? ChosenPorts(topology) : std::vector<const Nic*>();
  std::map<const Nic*, int> used;
  bool unbound = false;
  for (const Unit& unit : ring) {
    LocalRank rank;
    rank.device = DeviceName(*unit.gpu);
    rank.uuid = unit.gpu->uuid;
    if (unit.slice != nullptr) {
      absl::StrAppend(&rank.device, " ", unit.slice->profile);
      rank.uuid = unit.slice->uuid;
    }
    if (const Nic* nic = NearestPort(topology, ports, *unit.gpu, &used, &rank.nic_path);
        nic != nullptr) {
      rank.nic = nic->name;
    }
    rank.numa = NumaNodeOf(topology, unit.gpu->numa);
    for (const NumaNode& node : topology.numa) {
      rank.cpus = node.id == rank.numa ? node.cpus : rank.cpus;
    }
    unbound = unbound || rank.cpus.empty();
    plan.ranks.push_back(std::move(rank));
  }
  if (!ring.empty()) {
    plan.binding_reason = unbound ? "not to CPUs, since the NUMA nodes of the GPUs are not known"
                                  : "to the CPUs of the GPU's NUMA node";
    plan.nic_reason = ports.empty() ? "" : NicReason(plan.ranks, ports.size());
  }
  return plan;
}

}  // namespace trainctl
