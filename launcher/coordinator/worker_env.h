// The whole environment and argument contract of a worker, save what only its supervisor knows
// (TRAINCTL_PAGE, TRAINCTL_SOCKET, TORCHELASTIC_ERROR_FILE). Pure.
#ifndef TRAINCTL_LAUNCHER_COORDINATOR_WORKER_ENV_H_
#define TRAINCTL_LAUNCHER_COORDINATOR_WORKER_ENV_H_

#include <string>

#include "absl/strings/string_view.h"
#include "launcher/coordinator/action.h"
#include "launcher/coordinator/journal_record.h"
#include "launcher/coordinator/spec.h"

namespace trainctl {

// What `node` is told to start for `epoch`. `cores` are the node's. Environments are sorted by name
// and complete: nothing is inherited from the daemon. REQUIRES: `node` has a rank in `epoch`.
StartWorkers PlanWorkers(const JobSpec& spec, const EpochFormed& epoch, absl::string_view node,
                         int cores);

// The folder of a committed checkpoint: FOLDER/step-NNNNNNNNN.
std::string CheckpointPath(absl::string_view folder, Step step);

}  // namespace trainctl

#endif  // TRAINCTL_LAUNCHER_COORDINATOR_WORKER_ENV_H_
