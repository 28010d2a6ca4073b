#ifndef TRAINCTL_KERNELS_GELU_REFERENCE_H_
#define TRAINCTL_KERNELS_GELU_REFERENCE_H_

#include <cmath>
#include <cstdint>

namespace trainctl::reference {

inline void BiasGeluForward(const double* b, double* x, double* y, int64_t rows, int64_t width) {
  const double slope = std::sqrt(2 / std::acos(-1.0));
  for (int64_t k = 0; k < rows * width; ++k) {
    const double v = x[k] + b[k % width];
    const double t = std::tanh(slope * (v + 0.044715 * v * v * v));
    y[k] = 0.5 * v * (1 + t);
    x[k] = 0.5 * (1 + t) + 0.5 * v * (1 - t * t) * slope * (1 + 3 * 0.044715 * v * v);
  }
}

inline void BiasGeluBackward(const double* derivative, double* dy, double* db, int64_t rows,
                             int64_t width) {
  for (int64_t k = 0; k < rows * width; ++k) {
    dy[k] *= derivative[k];
    db[k % width] += dy[k];
  }
}

}  // namespace trainctl::reference

#endif  // TRAINCTL_KERNELS_GELU_REFERENCE_H_
