// What the NVIDIA driver knows of this node's GPUs. Creates no CUDA context.
#ifndef TRAINCTL_RUNTIME_TOPOLOGY_NVML_PROBE_H_
#define TRAINCTL_RUNTIME_TOPOLOGY_NVML_PROBE_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/topology/nvml_api.h"
#include "runtime/topology/topology.h"

namespace trainctl {

struct NvmlSeen {
  std::string driver;
  std::string cuda;
  std::vector<Gpu> gpus;    // by the driver's index; without NUMA nodes that only sysfs knows
  std::vector<Link> links;  // of pairs of GPUs
};

// Blocks for as long as the driver does (milliseconds; seconds where it must wake a GPU). An error
// says why there is no driver to ask; a GPU that does not answer is in `gpus`, with its problem.
absl::StatusOr<NvmlSeen> ProbeNvml(const NvmlApi& api);

}  // namespace trainctl

#endif  // TRAINCTL_RUNTIME_TOPOLOGY_NVML_PROBE_H_
