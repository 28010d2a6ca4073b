// Which part this command plays in a job of several nodes: one of them hosts the coordinator, the
// others take part. The same for the three ways of starting one: a list of nodes whose daemons run,
// the same command typed on every node, and a scheduler that starts it on every node.
#ifndef TRAINCTL_LAUNCHER_NODE_ROLE_H_
#define TRAINCTL_LAUNCHER_NODE_ROLE_H_

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "launcher/command_line.h"
#include "launcher/hosts.h"
#include "launcher/schedulers.h"
#include "runtime/base/network.h"
#include "runtime/topology/worker_binding.h"

namespace trainctl {

// This node's own part in a job; what is not said is the daemon's choice.
struct OwnPart {
  std::string node;
  int node_rank = -1;   // -1: any
  int slots = 0;        // 0: as many as the job has workers on each node
  std::string address;  // the one to tell to the others; empty: all that the machine has
  std::string topology;
  std::vector<std::string> gpus;  // that are locked for it
  WorkerBinding binding;
  std::string devices;  // topology of what `binding` names, as JSON
};

struct NodeRole {
  int min_nodes = 1;
  int max_nodes = 1;
  bool several = false;  // the job has or may have other nodes
  bool hosts = true;     // the coordinator runs here
  // Nobody said which node hosts: if another one listens at the endpoint, it is that one.
  bool may_join = false;
  Endpoint endpoint;                // of the coordinator; empty if the job has one node
  std::vector<std::string> nodes;   // expected, by rank; empty: not known
  std::vector<ListedNode> invited;  // whose daemons are to be asked
  std::string claim;                // what the same command says of itself on every node
  bool in_scheduler = false;
  OwnPart part;
};

// How names are looked up: whether a name, or a literal address, means this machine.
using IsOwnName = std::function<bool(const std::string& name)>;

// INVALID_ARGUMENT names the flag or variable and what was expected. `listed`: of --nodes or of the
// job file; empty: none.
absl::StatusOr<NodeRole> DecideRole(const LaunchFlags& flags,
                                    const std::optional<NodeIdentity>& scheduler,
                                    const std::vector<ListedNode>& listed,
                                    const IsOwnName& is_own_name);

}  // namespace trainctl

#endif  // TRAINCTL_LAUNCHER_NODE_ROLE_H_
