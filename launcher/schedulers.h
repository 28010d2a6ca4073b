// Which node of which job this process is, as the scheduler that started it tells by its
// environment. Pure.
#ifndef TRAINCTL_LAUNCHER_SCHEDULERS_H_
#define TRAINCTL_LAUNCHER_SCHEDULERS_H_

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace trainctl {

struct NodeIdentity {
  std::string scheduler;  // "Slurm", "Open MPI", "PMI", "Kubernetes"
  std::string job_id;     // of the scheduler, with the step if it has such; empty: it has none
  int node_rank = 0;
  int node_count = 0;              // 0: the scheduler does not tell
  std::string node;                // our own name there; empty: the machine's
  std::string head;                // name of the node of rank 0; empty: not told
  std::vector<std::string> nodes;  // all, by rank; empty: not told
  // Started by the scheduler on every node. False: once for the whole job, as a batch script is.
  bool on_every_node = true;
  int local_id = 0;     // among the tasks that the scheduler started on this node
  int local_tasks = 1;  // of those, how many
  int gpus = 0;         // of this node that the job has; 0: not told
  int cpus = 0;
  std::string topology;  // path of switches to this node, such as "s0.s4.n7"; empty: not told
  int requeues = 0;      // how often the scheduler has started the job again
};

// `full_name`: the machine's name with its domain, as far as it is known.
// nullopt: no scheduler that we know started this process, or a person in a shell of one did.
// INVALID_ARGUMENT: one did, and its variables contradict themselves; the message names the
// variable.
absl::StatusOr<std::optional<NodeIdentity>> IdentifyNode(
    const std::map<std::string, std::string>& environment, absl::string_view full_name);

// The port at which node 0 listens where nobody chose one: the same on every node, different for
// most jobs, below those that the kernel hands out.
int PortForJob(absl::string_view job_id);

}  // namespace trainctl

#endif  // TRAINCTL_LAUNCHER_SCHEDULERS_H_
