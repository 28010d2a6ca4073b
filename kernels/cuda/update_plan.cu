#include "kernels/cuda/update_plan.h"

#include "kernels/cuda/device.cuh"
#include "kernels/cuda/gradient_norm.h"

namespace trainctl::cuda {
namespace {

__global__ void PlanKernel(UpdateRule rule, const double* sum, const int32_t* first_bad,
                           const float* loss_scale, UpdateCounts* counts, UpdatePlan* plan) {
  const double inverse =
      rule.gradient_scale / (loss_scale == nullptr ? 1.0 : static_cast<double>(*loss_scale));
  const double norm = sqrt(*sum) * fabs(inverse);
  const bool apply = *first_bad == kAllFinite && isfinite(norm);
  if (apply) {
    ++counts->applied;
    counts->skipped_in_a_row = 0;
  } else {
    ++counts->skipped;
    ++counts->skipped_in_a_row;
  }
  const double clip = rule.max_norm / (norm + 1e-6);
  const double step = static_cast<double>(counts->applied);
  *plan = {
      .norm = norm,
      .first_correction = 1 / (1 - pow(rule.beta1, step)),
      .second_root = sqrt(1 - pow(rule.beta2, step)),
      .step = counts->applied,
      .gradient_scale =
          static_cast<float>(rule.max_norm > 0 && clip < 1 ? inverse * clip : inverse),
      .bad_tensor = apply ? -1 : *first_bad,
  };
}

__global__ void ScaleKernel(LossScaleRule rule, const UpdatePlan* plan, LossScale* state) {
  if (plan->bad_tensor >= 0) {
    state->good_steps = 0;
    if (state->scale <= rule.floor) {
      ++state->at_floor;
    } else {
      state->scale = fmaxf(state->scale * rule.backoff, rule.floor);
    }
    return;
  }
  state->at_floor = 0;
  if (++state->good_steps < rule.growth_interval) return;
  state->good_steps = 0;
  const float grown = state->scale * rule.growth;
  if (isfinite(grown)) state->scale = grown;
}

}  // namespace

absl::Status PlanUpdate(const UpdateRule& rule, const double* sum, const int32_t* first_bad,
                        const float* loss_scale, UpdateCounts* counts, UpdatePlan* plan,
                        cudaStream_t stream) {
  PlanKernel<<<1, 1, 0, stream>>>(rule, sum, first_bad, loss_scale, counts, plan);
  return LaunchStatus("PlanUpdate");
}

absl::Status UpdateLossScale(const LossScaleRule& rule, const UpdatePlan* plan, LossScale* state,
                             cudaStream_t stream) {
  ScaleKernel<<<1, 1, 0, stream>>>(rule, plan, state);
  return LaunchStatus("UpdateLossScale");
}

}  // namespace trainctl::cuda
