#include "runtime/bench/subject.h"

namespace trainctl {

absl::StatusOr<std::unique_ptr<Subject>> MakeNcclSubject(Session& /*session*/, size_t /*largest*/) {
  return absl::FailedPreconditionError(
      "measure NCCL: this build is without CUDA; build it with -DTRAINCTL_CUDA=ON");
}

bool HasGpu() { return false; }

}  // namespace trainctl
