// Clipping by the global norm. Works on gradients that are already equal on all ranks, so that all
// ranks do the same without a word between them.
#ifndef TRAINCTL_RUNTIME_WORKER_CLIP_H_
#define TRAINCTL_RUNTIME_WORKER_CLIP_H_

#include "absl/types/span.h"

namespace trainctl {

// sqrt of the sum of squares over all tensors, summed in double in a fixed order.
double GlobalNorm(absl::Span<const absl::Span<float>> tensors);

// Multiplies every element by max_norm / (norm + 1e-6) if that is below 1. Returns the norm before
// clipping; if it is not finite nothing was changed and the caller decides. REQUIRES: max_norm > 0.
double ClipByGlobalNorm(absl::Span<const absl::Span<float>> tensors, double max_norm);

}  // namespace trainctl

#endif  // TRAINCTL_RUNTIME_WORKER_CLIP_H_
