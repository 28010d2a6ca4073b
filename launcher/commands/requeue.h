// A Slurm job that has lost its first node, and with it its batch script and its srun: with
// --no-kill Slurm keeps it, and nobody would end it, or start it anew, before its time limit.
#ifndef TRAINCTL_LAUNCHER_COMMANDS_REQUEUE_H_
#define TRAINCTL_LAUNCHER_COMMANDS_REQUEUE_H_

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "launcher/schedulers.h"

namespace trainctl {

// Whether Slurm has taken the job's first node out of it, which takes it minutes to find out
// (SlurmdTimeout). Only then is the job not over, and not about to be ended by its srun. Blocks
// for as long as squeue does. UNAVAILABLE: squeue cannot be asked, or knows no such job.
// REQUIRES: identity.scheduler is Slurm.
absl::StatusOr<bool> HasLostFirstNode(const NodeIdentity& identity);

// Whoever is left asks; asked twice, Slurm does it once. What scontrol says goes to our stderr.
// Blocks until it has ended. FAILED_PRECONDITION: it refused, as where requeueing is off.
absl::Status RequeueJob(const NodeIdentity& identity);

}  // namespace trainctl

#endif  // TRAINCTL_LAUNCHER_COMMANDS_REQUEUE_H_
