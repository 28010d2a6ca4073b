// Whether a node is fit for what it is asked, beyond having the GPUs. Pure.
#ifndef TRAINCTL_RUNTIME_TOPOLOGY_FITNESS_H_
#define TRAINCTL_RUNTIME_TOPOLOGY_FITNESS_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "runtime/topology/topology.h"

namespace trainctl {

// A topology that was written down, against the machine as it is. FAILED_PRECONDITION: of another
// one.
absl::Status CheckSameNode(const Topology& written, const Topology& here);

// FAILED_PRECONDITION: NCCL_SOCKET_IFNAME (`wanted`, in NCCL's syntax) fits none of `interfaces`.
absl::Status CheckSocketInterface(const std::string& wanted,
                                  const std::vector<std::string>& interfaces);

// FAILED_PRECONDITION: the driver serves no program that is built for this CUDA `toolkit` ("13.0").
absl::Status CheckDriver(const Topology& topology, const std::string& toolkit);

}  // namespace trainctl

#endif  // TRAINCTL_RUNTIME_TOPOLOGY_FITNESS_H_
