// Proves that all ranks still hold the same parameters, bit by bit.
#ifndef TRAINCTL_RUNTIME_WORKER_DRIFT_H_
#define TRAINCTL_RUNTIME_WORKER_DRIFT_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "runtime/base/ids.h"
#include "runtime/worker/communicator.h"

namespace trainctl {

struct NamedTensor {
  std::string name;
  absl::Span<const float> data;
};

// Collective; every rank gives the same names and sizes. DATA_LOSS, the same on all ranks, names
// the ranks that differ from the most common value, the first tensor that differs, and the step.
// Costs one pass over the data and 8 bytes on the wire unless something differs.
absl::Status CheckReplicas(Communicator& communicator, absl::Span<const NamedTensor> tensors,
                           Step step);

}  // namespace trainctl

#endif  // TRAINCTL_RUNTIME_WORKER_DRIFT_H_
