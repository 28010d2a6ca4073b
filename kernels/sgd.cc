#include "kernels/sgd.h"

#include "kernels/vector.h"

namespace trainctl::ops {
namespace {

struct Factors {
  float learning_rate, momentum, weight_decay, gradient_scale;
};

TRAINCTL_INLINE void UpdateBody(const Factors& f, float* __restrict p, const float* __restrict g,
                                float* __restrict velocity, int64_t n) {
  const Factors c = f;
  for (int64_t i = 0; i < n; ++i) {
    const float gradient = g[i] * c.gradient_scale + c.weight_decay * p[i];
    velocity[i] = c.momentum * velocity[i] + gradient;
    p[i] -= c.learning_rate * velocity[i];
  }
}

TRAINCTL_MULTIVERSION(void, Update,
                      (const Factors& f, float* p, const float* g, float* velocity, int64_t n),
                      (f, p, g, velocity, n))

}  // namespace

void Sgd(const SgdStep& step, float* parameter, const float* gradient, float* velocity, int64_t n) {
  const Factors factors = {
      .learning_rate = static_cast<float>(step.learning_rate),
      .momentum = static_cast<float>(step.momentum),
      .weight_decay = static_cast<float>(step.weight_decay),
      .gradient_scale = static_cast<float>(step.gradient_scale),
  };
  Update(factors, parameter, gradient, velocity, n);
}

}  // namespace trainctl::ops
