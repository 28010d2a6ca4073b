#include "kernels/adamw.h"

#include <cmath>

#include "kernels/vector.h"

namespace trainctl::ops {
namespace {

struct Factors {
  float keep, step_size, beta1, one_minus_beta1, beta2, one_minus_beta2, epsilon, gradient_scale;
};

TRAINCTL_INLINE void UpdateBody(const Factors& f, float* __restrict p, const float* __restrict g,
                                float* __restrict m, float* __restrict v, int64_t n) {
  const Factors c = f;
  for (int64_t i = 0; i < n; ++i) {
    const float gradient = g[i] * c.gradient_scale;
    const float first = c.beta1 * m[i] + c.one_minus_beta1 * gradient;
    const float second = c.beta2 * v[i] + c.one_minus_beta2 * gradient * gradient;
    m[i] = first;
    v[i] = second;
    p[i] = c.keep * p[i] - c.step_size * first / (__builtin_sqrtf(second) + c.epsilon);
  }
}

TRAINCTL_MULTIVERSION(void, Update,
                      (const Factors& f, float* p, const float* g, float* m, float* v, int64_t n),
                      (f, p, g, m, v, n))

}  // namespace

void AdamW(const AdamWStep& step, float* parameter, const float* gradient, float* first_moment,
           float* second_moment, int64_t n) {
  // Both bias corrections go into the step size and epsilon:
  // lr m / c1 / (sqrt(v) / sqrt(c2) + eps) = (lr sqrt(c2) / c1) m / (sqrt(v) + eps sqrt(c2)).
  const double c1 = 1 - std::pow(step.beta1, static_cast<double>(step.step));
  const double root = std::sqrt(1 - std::pow(step.beta2, static_cast<double>(step.step)));
  const Factors factors = {
      .keep = static_cast<float>(1 - step.learning_rate * step.weight_decay),
      .step_size = static_cast<float>(step.learning_rate * root / c1),
      .beta1 = static_cast<float>(step.beta1),
      .one_minus_beta1 = static_cast<float>(1 - step.beta1),
      .beta2 = static_cast<float>(step.beta2),
      .one_minus_beta2 = static_cast<float>(1 - step.beta2),
      .epsilon = static_cast<float>(step.epsilon * root),
      .gradient_scale = static_cast<float>(step.gradient_scale),
  };
  Update(factors, parameter, gradient, first_moment, second_moment, n);
}

}  // namespace trainctl::ops
