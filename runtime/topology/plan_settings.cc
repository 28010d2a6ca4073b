#include <algorithm>
#include <optional>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "runtime/topology/plan_parts.h"

namespace trainctl {
namespace {

constexpr int kPicksGidItself = 22105;  // NCCL 2.21.5

bool IsRdma(const TransportChoice& choice) {
  return choice.transport == Transport::kRoce || choice.transport == Transport::kInfiniBand;
}

std::string PortName(const Nic& nic) {
  return absl::StrCat(nic.name.substr(0, nic.name.find(':')), ":", nic.port);
}

// NCCL takes every active port; it is told only if that is not what is wanted.
NcclSetting ChooseHca(const std::vector<Topology>& nodes) {
  NcclSetting setting;
  setting.name = "NCCL_IB_HCA";
  std::vector<std::string> first;
  bool excludes = false, alike = true;
  for (const Topology& node : nodes) {
    std::vector<std::string> names;
    for (const Nic* port : ChosenPorts(node)) {
      names.push_back(PortName(*port));
    }
    const auto usable = std::count_if(node.nics.begin(), node.nics.end(), [](const Nic& nic) {
      return nic.rdma && nic.state != PortState::kDown;
    });
    excludes = excludes || static_cast<size_t>(usable) > names.size();
    alike = alike && (first.empty() || first == names);
    first = names;
  }
  if (!excludes) {
    setting.reason = "every active RDMA port is to be used, and NCCL takes them by itself";
  } else if (!alike) {
    setting.reason = "the ports to use have other names on other nodes; give it on each node";
  } else {
    setting.who = NcclSetting::Who::kSet;
    setting.value = absl::StrCat("=", absl::StrJoin(first, ","));
    setting.reason = "other RDMA ports are slower or of another kind; = makes the names exact";
  }
  return setting;
}

std::optional<int> RoutableGid(const Nic& nic) {
  for (const Gid& gid : nic.gids) {
    if (gid.type == "RoCE v2" &&
        (absl::StrContains(gid.address, "ffff:") &&
         (absl::StartsWith(gid.address, "::ffff:") ||
          absl::StartsWith(gid.address, "0000:0000:0000:0000:0000:ffff")))) {
      return gid.index;
    }
  }
  return std::nullopt;
}

NcclSetting ChooseGid(const PlanRequest& request) {
  NcclSetting setting;
  setting.name = "NCCL_IB_GID_INDEX";
  setting.reason = "NCCL picks the RoCE v2 address by itself since 2.21.5";
  if (request.nccl_version == 0 || request.nccl_version >= kPicksGidItself) {
    return setting;
  }
  std::optional<int> index;
  for (const Topology& node : request.nodes) {
    for (const Nic* port : ChosenPorts(node)) {
      const std::optional<int> own = RoutableGid(*port);
      if (!own.has_value() || (index.has_value() && index != own)) {
        setting.reason =
            "this NCCL needs it, but the ports have RoCE v2 addresses at different "
            "places, or none; use NCCL 2.21.5 or later";
        return setting;
      }
      index = own;
    }
  }
  setting.who = NcclSetting::Who::kSet;
  setting.value = absl::StrCat(index.value_or(0));
  setting.reason =
      "NCCL before 2.21.5 does not look for the RoCE v2 address, which is there on "
      "every port";
  return setting;
}

NcclSetting Left(const char* name, const char* reason) {
  return {NcclSetting::Who::kLeftAlone, name, "", reason};
}
NcclSetting Set(const char* name, const char* value, const char* reason) {
  return {NcclSetting::Who::kSet, name, value, reason};
}

// nullptr: no preflight saw any.
const Topology* WithBadPeerAccess(const PlanRequest& request) {
  for (const Topology& node : request.nodes) {
    if (!node.bad_peer_access.empty()) return &node;
  }
  return nullptr;
}

std::vector<NcclSetting> Wanted(const PlanRequest& request, const TransportChoice& within,
                                const TransportChoice& between) {
  std::vector<NcclSetting> settings;
  if (request.deterministic) {
    settings.push_back(Set("NCCL_ALGO", "Ring", "sums in the same order in every run"));
    settings.push_back(
        Set("NCCL_NVLS_ENABLE", "0", "sums in the switch are not the same bits from call to call"));
  } else if (within.transport == Transport::kNvSwitch) {
    settings.push_back(Left("NCCL_NVLS_ENABLE", "NCCL asks the driver whether multicast is there"));
    settings.push_back(Left("NCCL_ALGO", "NCCL's choice by size is measured by its makers"));
  }
  if (const Topology* bad = WithBadPeerAccess(request); bad != nullptr) {
    settings.push_back({NcclSetting::Who::kSet, "NCCL_P2P_DISABLE", "1",
                        absl::StrCat("preflight", bad->node.empty() ? "" : " on ", bad->node, ": ",
                                     bad->bad_peer_access[0])});
  } else if (within.transport == Transport::kPcie) {
    settings.push_back(
        Left("NCCL_P2P_DISABLE", "only a copy that comes out wrong would be a reason"));
  } else if (within.transport == Transport::kSharedMemory) {
    settings.push_back(Left("NCCL_P2P_DISABLE", "NCCL goes through shared memory by itself"));
    settings.push_back(
        Left("NCCL_P2P_LEVEL", "forcing peer access beyond its limit can be slower, or hang"));
  }
  if (IsRdma(between)) {
    settings.push_back(ChooseHca(request.nodes));
    settings.push_back(Left("NCCL_NET_GDR_LEVEL", "NCCL uses GPUDirect up to PXB by itself"));
    settings.push_back(Left("NCCL_IB_TIMEOUT", "only a fabric whose links flap is a reason"));
  }
  if (between.transport == Transport::kRoce) {
    settings.push_back(ChooseGid(request));
    settings.push_back(Left("NCCL_IB_TC", "the lossless class is the site's to name"));
    settings.push_back(Left("NCCL_CROSS_NIC", "whether rails are separate is not to be seen"));
  }
  const bool some_have_rdma =
      std::any_of(request.nodes.begin(), request.nodes.end(),
                  [](const Topology& node) { return !ChosenPorts(node).empty(); });
  if (between.transport == Transport::kTcp && some_have_rdma) {
    settings.push_back(Set("NCCL_IB_DISABLE", "1",
                           "the nodes have no kind of RDMA port in common, and each would take its "
                           "own"));
  }
  if (between.transport == Transport::kTcp && between.gigabytes_per_second >= 12.5) {
    settings.push_back(
        Set("NCCL_SOCKET_NTHREADS", "4", "one thread cannot fill 100 Gb/s Ethernet"));
    settings.push_back(Set("NCCL_NSOCKS_PERTHREAD", "4", "nor can one connection a thread"));
  }
  if (between.transport != Transport::kNone) {
    settings.push_back(Left("NCCL_SOCKET_IFNAME",
                            "set in each epoch, to the interface that reached rank 0's node"));
  }
  return settings;
}

}  // namespace

std::vector<NcclSetting> ChooseSettings(const PlanRequest& request, const TransportChoice& within,
                                        const TransportChoice& between) {
  std::vector<NcclSetting> settings;
  // A preflight may have seen GPUs where the driver's library shows none.
  if (within.transport != Transport::kCpu || WithBadPeerAccess(request) != nullptr) {
    settings = Wanted(request, within, between);
  }
  for (const auto& [name, value] : request.environment) {
    const auto ours = std::find_if(settings.begin(), settings.end(),
                                   [&name = name](const NcclSetting& s) { return s.name == name; });
    NcclSetting yours{NcclSetting::Who::kYours, name, value, "passed on as you gave it"};
    if (ours == settings.end()) {
      settings.push_back(std::move(yours));
    } else {
      yours.reason =
          ours->who == NcclSetting::Who::kSet
              ? absl::StrCat("yours wins over our ", ours->value, " (", ours->reason, ")")
              : absl::StrCat("yours wins; otherwise left alone (", ours->reason, ")");
      *ours = std::move(yours);
    }
  }
  return settings;
}

}  // namespace trainctl
