// AdamW over many tensors at once, with float32 master weights and the copy that the model computes
// with written in the same pass.
#ifndef TRAINCTL_KERNELS_CUDA_ADAMW_H_
#define TRAINCTL_KERNELS_CUDA_ADAMW_H_

#include <cuda_runtime_api.h>

#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "kernels/cuda/dtype.h"
#include "kernels/cuda/rounding.h"
#include "kernels/cuda/update_plan.h"

namespace trainctl::cuda {

struct AdamWTensor {
  float* master;
  void* copy;            // of copy_type; null: the model computes with the master
  const void* gradient;  // of gradient_type
  float* first_moment;
  float* second_moment;
  int64_t n;
  int64_t first_index;  // of the first element in a numbering of the whole model; multiple of 8
  float weight_decay;
};

struct AdamWRule {
  double learning_rate, beta1, beta2, epsilon;
};

// The update of kernels/adamw.h with step and gradient_scale from *plan (on the device), then
// copy = master rounded. Changes nothing if plan->bad_tensor >= 0. Random bits of stochastic
// rounding are a function of seed, plan->step and the element's index: neither of the launch nor of
// how the model is sharded. `tensors` is read before the call returns; all have a copy or none has.
// Tensors that begin on 16-byte boundaries are fastest.
absl::Status AdamW(const AdamWRule& rule, absl::Span<const AdamWTensor> tensors, Dtype copy_type,
                   Dtype gradient_type, CopyRounding rounding, const UpdatePlan* plan,
                   cudaStream_t stream);

}  // namespace trainctl::cuda

#endif  // TRAINCTL_KERNELS_CUDA_ADAMW_H_
