// What a shim leaves behind that was killed whole, or could not begin.
#ifndef TRAINCTL_RUNTIME_NODE_SHIM_SWEEP_H_
#define TRAINCTL_RUNTIME_NODE_SHIM_SWEEP_H_

#include <string>

#include "absl/status/status.h"
#include "runtime/base/time.h"

namespace trainctl {

// Kills whoever is left in its cgroup, and removes socket, mark and lock. UNAVAILABLE: one of its
// processes lives. DEADLINE_EXCEEDED: some in the cgroup were still there after `patience`; another
// call goes on with them.
absl::Status SweepShim(const std::string& shim_socket, Duration patience);

}  // namespace trainctl

#endif  // TRAINCTL_RUNTIME_NODE_SHIM_SWEEP_H_
