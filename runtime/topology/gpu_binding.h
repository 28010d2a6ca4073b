// Which GPU, CPUs and NUMA node each worker of a node gets, and what NCCL is told there. Pure.
#ifndef TRAINCTL_RUNTIME_TOPOLOGY_GPU_BINDING_H_
#define TRAINCTL_RUNTIME_TOPOLOGY_GPU_BINDING_H_

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "runtime/topology/topology.h"
#include "runtime/topology/transport_plan.h"
#include "runtime/topology/worker_binding.h"

namespace trainctl {

enum class CpuBinding {
  kNode,       // to all CPUs of the GPU's NUMA node
  kExclusive,  // these, divided among the node's workers
  kNone,
};

// "node", "exclusive", "none", as --numa-binding. INVALID_ARGUMENT: another.
absl::StatusOr<CpuBinding> ParseCpuBinding(absl::string_view text);

struct GpuRequest {
  std::string gpus;                    // as --gpus: "1,3", UUIDs; empty: all that may be used
  std::optional<std::string> visible;  // CUDA_VISIBLE_DEVICES of the user
  int workers = 0;                     // 0: one for each GPU
  bool several_nodes = false;
  CpuBinding binding = CpuBinding::kNode;
  std::vector<int> allowed_cpus;   // rising; empty: not known
  bool has_memory_policy = false;  // numactl has said where memory is to be
  std::string toolkit;             // the CUDA version that workers are built for; empty: not known
  std::vector<std::string> interfaces;             // of this node
  std::map<std::string, std::string> environment;  // the user's own NCCL_* variables
};

struct GpuBinding {
  WorkerBinding workers;
  Topology chosen;     // the node as if it had no other GPUs
  TransportPlan plan;  // that follows from it
};

// INVALID_ARGUMENT: `gpus` or `workers` names what cannot be. FAILED_PRECONDITION: this node is not
// fit, with what to do about it.
absl::StatusOr<GpuBinding> BindGpus(const Topology& topology, const GpuRequest& request);

}  // namespace trainctl

#endif  // TRAINCTL_RUNTIME_TOPOLOGY_GPU_BINDING_H_
