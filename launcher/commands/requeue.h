// Asking a scheduler to start a job anew.
#ifndef TRAINCTL_LAUNCHER_COMMANDS_REQUEUE_H_
#define TRAINCTL_LAUNCHER_COMMANDS_REQUEUE_H_

#include "absl/status/status.h"
#include "launcher/schedulers.h"

namespace trainctl {

// Slurm keeps a job of --no-kill that has lost its first node, although its batch script and srun
// were there: nobody would end it, or start it anew, before its time limit. Whoever is left and has
// found the coordinator gone asks for it; asked twice, Slurm does it once. What scontrol says goes
// to our stderr. Blocks until it has ended.
// UNIMPLEMENTED: not Slurm. FAILED_PRECONDITION: scontrol refused, as where requeueing is off.
absl::Status RequeueJob(const NodeIdentity& identity);

}  // namespace trainctl

#endif  // TRAINCTL_LAUNCHER_COMMANDS_REQUEUE_H_
