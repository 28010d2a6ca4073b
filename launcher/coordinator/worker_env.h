// The whole environment and argument contract of a worker, save what only its supervisor knows
// (TRAINCTL_PAGE, TRAINCTL_SOCKET, TORCHELASTIC_ERROR_FILE). Pure.
#ifndef TRAINCTL_LAUNCHER_COORDINATOR_WORKER_ENV_H_
#define TRAINCTL_LAUNCHER_COORDINATOR_WORKER_ENV_H_

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "launcher/coordinator/action.h"
#include "launcher/coordinator/journal_record.h"
#include "launcher/coordinator/spec.h"

namespace trainctl {

// Plans the workers of one epoch, node by node. `spec` and `epoch` must outlive it.
class WorkerPlanner {
 public:
  WorkerPlanner(const JobSpec& spec, const EpochFormed& epoch);

  // What the node with this place in EpochFormed::nodes is told to start. `cores` are the node's.
  // Environments are sorted by name and complete: nothing is inherited from the daemon.
  StartWorkers Plan(size_t seat, int cores) const;

 private:
  const JobSpec& spec_;
  const EpochFormed& epoch_;
  std::map<std::string, std::string> common_;  // to all nodes
  std::string tf_cluster_;
};

// The same for one node alone. REQUIRES: `node` has a place in `epoch`.
StartWorkers PlanWorkers(const JobSpec& spec, const EpochFormed& epoch, absl::string_view node,
                         int cores);

// Who says what a variable of a worker is: the plan, whatever stands in the user's environment; the
// user, and without a word from there the plan; or the user alone.
enum class VariableOwner { kPlan, kUserElsePlan, kUser };
VariableOwner OwnerOf(absl::string_view variable);

// The environment of workers on a node where the user typed the command, too: `planned` is made
// from the environment of the coordinator's node, `own` ("NAME=value" both) is what it is here.
std::vector<std::string> ForOwnNode(const std::vector<std::string>& planned,
                                    const std::vector<std::string>& own);

// The folder of a committed checkpoint: FOLDER/step-NNNNNNNNN.
std::string CheckpointPath(absl::string_view folder, Step step);

}  // namespace trainctl

#endif  // TRAINCTL_LAUNCHER_COORDINATOR_WORKER_ENV_H_
