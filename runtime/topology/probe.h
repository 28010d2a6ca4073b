// Looks at this machine, or at the recording of one.
#ifndef TRAINCTL_RUNTIME_TOPOLOGY_PROBE_H_
#define TRAINCTL_RUNTIME_TOPOLOGY_PROBE_H_

#include <string>

#include "absl/status/statusor.h"
#include "runtime/topology/nvml_probe.h"
#include "runtime/topology/topology.h"
#include "runtime/topology/verbs_probe.h"

namespace trainctl {

// Everything that sysfs (below `root`), the driver and the verbs library say, as one value. Where
// they disagree, the driver is right about GPUs and the verbs library about ports. Whatever could
// not be asked is among the problems; there is always a topology.
Topology TopologyFrom(const std::string& root, const absl::StatusOr<NvmlSeen>& driver,
                      const VerbsSeen& verbs);

// Of this machine. Blocks as long as the drivers do; creates no CUDA context.
Topology ProbeTopology();

}  // namespace trainctl

#endif  // TRAINCTL_RUNTIME_TOPOLOGY_PROBE_H_
