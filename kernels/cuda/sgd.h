// Gradient descent with momentum over many tensors at once; copies and rounding as in adamw.h.
#ifndef TRAINCTL_KERNELS_CUDA_SGD_H_
#define TRAINCTL_KERNELS_CUDA_SGD_H_

#include <cuda_runtime_api.h>

#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "kernels/cuda/dtype.h"
#include "kernels/cuda/rounding.h"
#include "kernels/cuda/update_plan.h"

namespace trainctl::cuda {

struct SgdTensor {
  float* master;
  void* copy;            // of copy_type; null: the model computes with the master
  const void* gradient;  // of gradient_type
  float* velocity;
  int64_t n;
  int64_t first_index;  // as in AdamWTensor
  float weight_decay;   // added to the gradient (not decoupled)
};

struct SgdRule {
  double learning_rate, momentum;
};

// The update of kernels/sgd.h with gradient_scale from *plan; all else as AdamW.
absl::Status Sgd(const SgdRule& rule, absl::Span<const SgdTensor> tensors, Dtype copy_type,
                 Dtype gradient_type, CopyRounding rounding, const UpdatePlan* plan,
                 cudaStream_t stream);

}  // namespace trainctl::cuda

#endif  // TRAINCTL_KERNELS_CUDA_SGD_H_
