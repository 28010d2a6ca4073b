#ifndef TRAINCTL_KERNELS_RELU_REFERENCE_H_
#define TRAINCTL_KERNELS_RELU_REFERENCE_H_

#include <cstdint>

namespace trainctl::reference {

inline void BiasReluForward(const double* b, double* y, int64_t rows, int64_t width) {
  for (int64_t k = 0; k < rows * width; ++k) {
    const double v = y[k] + b[k % width];
    y[k] = v < 0 ? 0 : v;
  }
}

inline void BiasReluBackward(const double* y, double scale, double* dy, double* db, int64_t rows,
                             int64_t width) {
  for (int64_t k = 0; k < rows * width; ++k) {
    dy[k] = y[k] > 0 ? dy[k] * scale : 0;
    db[k % width] += dy[k];
  }
}

}  // namespace trainctl::reference

#endif  // TRAINCTL_KERNELS_RELU_REFERENCE_H_
