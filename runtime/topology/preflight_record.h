// What the last preflight of this user on this machine saw, kept for whoever plans afterwards. It
// counts until the machine is restarted or has another driver or other GPUs.
#ifndef TRAINCTL_RUNTIME_TOPOLOGY_PREFLIGHT_RECORD_H_
#define TRAINCTL_RUNTIME_TOPOLOGY_PREFLIGHT_RECORD_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "runtime/topology/topology.h"

namespace trainctl {

// What topology.bad_peer_access says, in place of what was there. `topology` is this machine's.
absl::Status RecordPreflight(const Topology& topology);
// What was recorded of this machine as it is; empty: nothing, or of another time.
std::vector<std::string> RecordedPreflight(const Topology& topology);

}  // namespace trainctl

#endif  // TRAINCTL_RUNTIME_TOPOLOGY_PREFLIGHT_RECORD_H_
