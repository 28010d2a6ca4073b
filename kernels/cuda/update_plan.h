// What an optimizer's update does with the gradient of this step, decided on the device so that no
// step waits for the CPU: skip it (not finite), clip it, undo the loss scale.
#ifndef TRAINCTL_KERNELS_CUDA_UPDATE_PLAN_H_
#define TRAINCTL_KERNELS_CUDA_UPDATE_PLAN_H_

#include <cuda_runtime_api.h>

#include <cstdint>

#include "absl/status/status.h"

namespace trainctl::cuda {

// On the device; part of a training state. Zeroed before the first step.
struct UpdateCounts {
  int64_t applied;
  int64_t skipped;
  int64_t skipped_in_a_row;
};

// On the device; read by AdamW and Sgd, and by whoever records the step.
struct UpdatePlan {
  double norm;              // of the unscaled gradient before clipping
  double first_correction;  // 1 / (1 - beta1^step)
  double second_root;       // sqrt(1 - beta2^step)
  int64_t step;             // counts applied updates; 1 for the first
  float gradient_scale;     // the update multiplies the gradient by it
  // -1: the update is applied. Else nothing is changed: the number of the first tensor that is not
  // finite, or kAllFinite where only the sum of all is not.
  int32_t bad_tensor;
};

struct UpdateRule {
  double max_norm;        // clips to max_norm / (norm + 1e-6); 0: no clipping
  double gradient_scale;  // of the gradient as it lies there, e.g. 1 / ranks; 1: none
  double beta1, beta2;    // AdamW's; 0 for others
};

// From SumOfSquares' results (of all shards, where the gradient is sharded) and *loss_scale (null:
// 1), writes *plan and counts in *counts.
absl::Status PlanUpdate(const UpdateRule& rule, const double* sum, const int32_t* first_bad,
                        const float* loss_scale, UpdateCounts* counts, UpdatePlan* plan,
                        cudaStream_t stream);

// Loss scaling for float16. On the device; part of a training state.
struct LossScale {
  float scale;
  int32_t good_steps;  // since the scale last changed
  int32_t at_floor;    // skipped steps in a row at which the scale could not fall any more
};

struct LossScaleRule {
  float growth = 2.0f, backoff = 0.5f;
  int32_t growth_interval = 2000;
  float floor = 1.0f;
};

// After PlanUpdate: a skipped step multiplies the scale by `backoff`, not below `floor`;
// growth_interval good steps multiply it by `growth` if the result is finite.
absl::Status UpdateLossScale(const LossScaleRule& rule, const UpdatePlan* plan, LossScale* state,
                             cudaStream_t stream);

}  // namespace trainctl::cuda

#endif  // TRAINCTL_KERNELS_CUDA_UPDATE_PLAN_H_
