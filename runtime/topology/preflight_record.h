// What the last preflight of this user on this machine saw, kept for whoever plans afterwards. It
// counts until the machine is restarted or has another driver or other GPUs.
#ifndef TRAINCTL_LAUNCHER_PREFLIGHT_RECORD_H_
#define TRAINCTL_LAUNCHER_PREFLIGHT_RECORD_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "runtime/topology/transport_plan.h"

namespace trainctl {

// Replaces what was there. `topology` is this machine's.
absl::Status RecordPreflight(const Topology& topology, const std::vector<BadPeerAccess>& bad);
// None if nothing was recorded, or of another time.
std::vector<BadPeerAccess> RecordedPreflight(const Topology& topology);

}  // namespace trainctl

#endif  // TRAINCTL_LAUNCHER_PREFLIGHT_RECORD_H_
