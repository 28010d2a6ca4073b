#include "kernels/cuda/adamw.h"

#include "kernels/cuda/update.cuh"

namespace trainctl::cuda {
namespace {

struct Rule {
  static constexpr const char* kName = "AdamW";
  static constexpr int kStates = 2;

  double learning_rate, epsilon;
  float beta1, one_minus_beta1, beta2, one_minus_beta2;

  __device__ static float* State(const AdamWTensor& tensor, int s) {
    return s == 0 ? tensor.first_moment : tensor.second_moment;
  }

  // Both bias corrections go into the step size and epsilon, as in kernels/adamw.cc.
  __device__ auto Arithmetic(const UpdatePlan& plan, const AdamWTensor& tensor) const {
    const float keep =
        static_cast<float>(1 - learning_rate * static_cast<double>(tensor.weight_decay));
    const float step_size =
        static_cast<float>(learning_rate * plan.second_root * plan.first_correction);
    const float floor = static_cast<float>(epsilon * plan.second_root);
    const float gradient_scale = plan.gradient_scale;
    return [=, *this](float& p, float g, float(&moment)[kStates]) {
      const float gradient = g * gradient_scale;
      moment[0] = beta1 * moment[0] + one_minus_beta1 * gradient;
      moment[1] = beta2 * moment[1] + one_minus_beta2 * gradient * gradient;
      p = keep * p - step_size * moment[0] / (sqrtf(moment[1]) + floor);
    };
  }
};

}  // namespace

absl::Status AdamW(const AdamWRule& rule, absl::Span<const AdamWTensor> tensors, Dtype copy_type,
                   Dtype gradient_type, CopyRounding rounding, const UpdatePlan* plan,
                   cudaStream_t stream) {
  const Rule factors = {
      .learning_rate = rule.learning_rate,
      .epsilon = rule.epsilon,
      .beta1 = static_cast<float>(rule.beta1),
      .one_minus_beta1 = static_cast<float>(1 - rule.beta1),
      .beta2 = static_cast<float>(rule.beta2),
      .one_minus_beta2 = static_cast<float>(1 - rule.beta2),
  };
  return Update(factors, tensors, copy_type, gradient_type, rounding, plan, stream);
}

}  // namespace trainctl::cuda
