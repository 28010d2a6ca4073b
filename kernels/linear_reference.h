#ifndef TRAINCTL_KERNELS_LINEAR_REFERENCE_H_
#define TRAINCTL_KERNELS_LINEAR_REFERENCE_H_

#include <cstdint>

namespace trainctl::reference {

inline void LinearForward(const double* x, const double* w, const double* b, double* y,
                          int64_t rows, int64_t in, int64_t out) {
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t o = 0; o < out; ++o) {
      double sum = b == nullptr ? 0 : b[o];
      for (int64_t i = 0; i < in; ++i) sum += x[r * in + i] * w[o * in + i];
      y[r * out + o] = sum;
    }
  }
}

// Adds to dw and db, overwrites dx.
inline void LinearBackward(const double* dy, const double* x, const double* w, double* dx,
                           double* dw, double* db, int64_t rows, int64_t in, int64_t out) {
  for (int64_t k = 0; k < rows * in; ++k) dx[k] = 0;
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t o = 0; o < out; ++o) {
      const double d = dy[r * out + o];
      db[o] += d;
      for (int64_t i = 0; i < in; ++i) {
        dx[r * in + i] += d * w[o * in + i];
        dw[o * in + i] += d * x[r * in + i];
      }
    }
  }
}

}  // namespace trainctl::reference

#endif  // TRAINCTL_KERNELS_LINEAR_REFERENCE_H_
