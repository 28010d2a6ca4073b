#ifndef TRAINCTL_KERNELS_ADAMW_REFERENCE_H_
#define TRAINCTL_KERNELS_ADAMW_REFERENCE_H_

#include <cmath>
#include <cstdint>

#include "kernels/adamw.h"

namespace trainctl::reference {

inline void AdamW(const ops::AdamWStep& s, double* p, const double* g, double* m, double* v,
                  int64_t n) {
  const double t = static_cast<double>(s.step);
  for (int64_t i = 0; i < n; ++i) {
    const double gradient = g[i] * s.gradient_scale;
    m[i] = s.beta1 * m[i] + (1 - s.beta1) * gradient;
    v[i] = s.beta2 * v[i] + (1 - s.beta2) * gradient * gradient;
    const double first = m[i] / (1 - std::pow(s.beta1, t));
    const double second = v[i] / (1 - std::pow(s.beta2, t));
    p[i] -= s.learning_rate * s.weight_decay * p[i];
    p[i] -= s.learning_rate * first / (std::sqrt(second) + s.epsilon);
  }
}

}  // namespace trainctl::reference

#endif  // TRAINCTL_KERNELS_ADAMW_REFERENCE_H_
