// A build without CUDA.
#include "runtime/trainer/replica.h"

namespace trainctl {

FoundGpu LookForGpu(int) { return {.text = "this build of trainctl has no GPU code"}; }

absl::StatusOr<std::unique_ptr<Replica>> MakeReplica(const TrainConfig&, const OpenedData&,
                                                     const std::vector<ParameterSpec>&,
                                                     const ReplicaRequest& request) {
  return absl::FailedPreconditionError(request.gpu.text);
}

}  // namespace trainctl
