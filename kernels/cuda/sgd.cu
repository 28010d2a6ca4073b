#include "kernels/cuda/sgd.h"

#include "kernels/cuda/update.cuh"

namespace trainctl::cuda {
namespace {

struct Rule {
  static constexpr const char* kName = "Sgd";
  static constexpr int kStates = 1;

  float learning_rate, momentum;

  __device__ static float* State(const SgdTensor& tensor, int) { return tensor.velocity; }

  __device__ auto Arithmetic(const UpdatePlan& plan, const SgdTensor& tensor) const {
    const float gradient_scale = plan.gradient_scale, decay = tensor.weight_decay;
    return [=, *this](float& p, float g, float(&velocity)[kStates]) {
      velocity[0] = momentum * velocity[0] + (g * gradient_scale + decay * p);
      p -= learning_rate * velocity[0];
    };
  }
};

}  // namespace

absl::Status Sgd(const SgdRule& rule, absl::Span<const SgdTensor> tensors, Dtype copy_type,
                 Dtype gradient_type, CopyRounding rounding, const UpdatePlan* plan,
                 cudaStream_t stream) {
  const Rule factors = {.learning_rate = static_cast<float>(rule.learning_rate),
                        .momentum = static_cast<float>(rule.momentum)};
  return Update(factors, tensors, copy_type, gradient_type, rounding, plan, stream);
}

}  // namespace trainctl::cuda
