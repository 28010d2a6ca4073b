// A GPU belongs to one job at a time, whichever daemons run on the node: one lock file per GPU in a
// folder that all users share. A lock is a flock on an open file, so it passes to the shim by
// inheritance and ends with the last process that has it open, however that one dies.
#ifndef TRAINCTL_RUNTIME_NODE_SLOT_LOCK_H_
#define TRAINCTL_RUNTIME_NODE_SLOT_LOCK_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/base/fd.h"

namespace trainctl {

// /run/lock/trainctl, or /tmp/trainctl-locks where that cannot be made.
std::string SlotLockFolder();

// All of them or none. RESOURCE_EXHAUSTED names the GPU that is taken and the job that has it;
// INVALID_ARGUMENT: no GPU has such a UUID's form; FAILED_PRECONDITION: the folder or a file in it
// is not what it must be.
absl::StatusOr<std::vector<Fd>> LockSlots(const std::string& folder,
                                          const std::vector<std::string>& gpu_uuids,
                                          const std::string& job_id);

// One shim per job and node: held, in the same way, until both its processes have ended, and so
// until no worker of it is left. UNAVAILABLE: an earlier one is still ending. Whoever holds it may
// remove the file.
absl::StatusOr<Fd> LockShim(const std::string& path);

}  // namespace trainctl

#endif  // TRAINCTL_RUNTIME_NODE_SLOT_LOCK_H_
