#include "launcher/node_role.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "launcher/flag_value.h"
#include "runtime/base/status.h"
#include "runtime/security/peer_name.h"

namespace trainctl {
namespace {

constexpr int kRendezvousPort = 29400;  // torchrun's, where the endpoint has none
constexpr int kMasterPort = 29500;
constexpr int kMaxNodeRank = 65535;

// Without --nnodes the scheduler's count or the list's.
absl::Status CountNodes(const LaunchFlags& flags, const std::optional<NodeIdentity>& scheduler,
                        size_t listed, NodeRole* role) {
  if (flags.standalone) return absl::OkStatus();
  if (flags.nnodes.has_value()) {
    absl::StatusOr<std::pair<int, int>> count = ParseNodeCount(*flags.nnodes);
    if (!count.ok()) return InFlag("--nnodes", count.status());
    std::tie(role->min_nodes, role->max_nodes) = *count;
  } else if (listed > 0) {
    role->min_nodes = role->max_nodes = static_cast<int>(listed);
  } else if (scheduler.has_value() && scheduler->node_count > 0) {
    if (scheduler->node_count > 1 && !scheduler->on_every_node) {
      return absl::InvalidArgumentError(absl::StrCat(
          scheduler->scheduler, " job ", scheduler->job_id, " has ", scheduler->node_count,
          " nodes, and this is its script, which runs once: start the command on every node (srun "
          "trainctl launch …), or give --nnodes 1"));
    }
    role->min_nodes = role->max_nodes = scheduler->node_count;
  }
  return absl::OkStatus();
}

std::string Claim(const LaunchFlags& flags, const std::optional<NodeIdentity>& scheduler) {
  if (flags.rdzv_id.has_value() && *flags.rdzv_id != "none") {
    return absl::StrCat("--rdzv-id ", *flags.rdzv_id);
  }
  if (scheduler.has_value() && !scheduler->job_id.empty()) {
    return absl::StrCat(scheduler->scheduler, " job ", scheduler->job_id);
  }
  return absl::StrCat(flags.module ? "-m " : "", flags.program.empty() ? "" : flags.program[0]);
}

// What --rdzv-conf says of is_host.
std::optional<bool> SaidToHost(const LaunchFlags& flags) {
  for (const absl::string_view entry : absl::StrSplit(flags.rdzv_conf.value_or(""), ',')) {
    if (absl::StartsWith(entry, "is_host=")) {
      const absl::string_view value = entry.substr(8);
      return absl::EqualsIgnoreCase(value, "true") || value == "1";
    }
  }
  return std::nullopt;
}

absl::StatusOr<Endpoint> FindEndpoint(const LaunchFlags& flags,
                                      const std::optional<NodeIdentity>& scheduler) {
  if (flags.rdzv_endpoint.has_value() && !flags.rdzv_endpoint->empty()) {
    absl::StatusOr<Endpoint> endpoint = ParseEndpoint(*flags.rdzv_endpoint, kRendezvousPort);
    if (!endpoint.ok()) return InFlag("--rdzv-endpoint", endpoint.status());
    return endpoint;
  }
  if (flags.master_addr.has_value()) {
    absl::StatusOr<Endpoint> endpoint = ParseEndpoint(*flags.master_addr, kMasterPort);
    if (!endpoint.ok()) return InFlag("--master-addr", endpoint.status());
    if (flags.master_port.has_value()) {
      absl::StatusOr<int64_t> port = ParseInteger(*flags.master_port, 1, 65535);
      if (!port.ok()) return InFlag("--master-port", port.status());
      endpoint->port = static_cast<int>(*port);
    }
    return endpoint;
  }
  if (scheduler.has_value() && !scheduler->head.empty()) {
    return Endpoint{scheduler->head, PortForJob(scheduler->job_id)};
  }
  return absl::InvalidArgumentError(
      "a job on several nodes needs a place where they meet: --rdzv-endpoint HOST:PORT with node "
      "0's name or address, the same on every node; or --nodes LIST, where daemons run");
}

// The entry of the list that means this machine.
absl::Status FindOwnEntry(const std::vector<ListedNode>& listed, const IsOwnName& is_own_name,
                          NodeRole* role) {
  for (const ListedNode& node : listed) {
    role->nodes.push_back(node.name);
    if (role->part.node.empty() && is_own_name(node.name)) {
      role->part.node = node.name;
      role->part.slots = node.slots;
    }
  }
  if (!role->part.node.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      "--nodes: this machine is none of them, and the job's coordinator runs on the node where the "
      "job is started: start it on one of them, or add this one");
}

absl::Status TakeOwnFlags(const LaunchFlags& flags, NodeRole* role) {
  if (flags.node_rank.has_value()) {
    absl::StatusOr<int64_t> rank = ParseInteger(*flags.node_rank, 0, kMaxNodeRank);
    if (!rank.ok()) return InFlag("--node-rank", rank.status());
    role->part.node_rank = static_cast<int>(*rank);
  }
  if (flags.local_addr.has_value() && !flags.local_addr->empty()) {
    if (IsLiteralAddress(*flags.local_addr)) role->part.address = *flags.local_addr;
  }
  if (flags.node_name.has_value()) {
    if (!IsNodeName(*flags.node_name)) {
      return absl::InvalidArgumentError(absl::StrCat("--node-name: found \"", *flags.node_name,
                                                     "\", expected 1 to 253 of A-Z a-z 0-9 . _ -"));
    }
    role->part.node = *flags.node_name;
  }
  return absl::OkStatus();
}

absl::Status CheckRank(const NodeRole& role) {
  const int rank = role.part.node_rank;
  if (rank < role.max_nodes) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("--node-rank: found ", rank,
                                                 ", but node ranks of --nnodes ", role.max_nodes,
                                                 " go from 0 to ", role.max_nodes - 1));
}

}  // namespace

absl::StatusOr<NodeRole> DecideRole(const LaunchFlags& flags,
                                    const std::optional<NodeIdentity>& scheduler,
                                    const std::vector<ListedNode>& listed,
                                    const IsOwnName& is_own_name) {
  NodeRole role;
  role.in_scheduler = scheduler.has_value();
  RETURN_IF_ERROR(CountNodes(flags, scheduler, listed.size(), &role));
  role.several = role.max_nodes > 1;
  // Nodes that the scheduler gave beyond those that the job wants wait for a place.
  const bool spare = scheduler.has_value() && scheduler->node_rank >= role.max_nodes;
  if (scheduler.has_value()) {
    role.part.node = scheduler->node;
    role.part.topology = scheduler->topology;
    if (role.several && !spare) role.part.node_rank = scheduler->node_rank;
  }
  RETURN_IF_ERROR(TakeOwnFlags(flags, &role));
  if (role.several || flags.node_rank.has_value()) RETURN_IF_ERROR(CheckRank(role));
  if (!role.several) {
    role.part.node_rank = -1;
    return role;
  }
  role.claim = Claim(flags, scheduler);
  if (!listed.empty()) {
    role.part.node_rank = -1;
    RETURN_IF_ERROR(FindOwnEntry(listed, is_own_name, &role));
    role.invited = listed;
    role.endpoint = Endpoint{"0.0.0.0", 0};
    return role;
  }
  ASSIGN_OR_RETURN(role.endpoint, FindEndpoint(flags, scheduler));
  if (role.endpoint.port == 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--rdzv-endpoint: found port 0, but other nodes must know the port: ", role.endpoint.name,
        ":", kRendezvousPort));
  }
  if (const std::optional<bool> said = SaidToHost(flags); said.has_value()) {
    role.hosts = *said;
  } else if (role.part.node_rank >= 0) {
    role.hosts = role.part.node_rank == 0;
  } else if (spare) {
    role.hosts = false;
  } else {
    role.hosts = is_own_name(role.endpoint.name);
    role.may_join = role.hosts;
  }
  if (scheduler.has_value()) role.nodes = scheduler->nodes;
  return role;
}

}  // namespace trainctl
