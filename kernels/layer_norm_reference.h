#ifndef TRAINCTL_KERNELS_LAYER_NORM_REFERENCE_H_
#define TRAINCTL_KERNELS_LAYER_NORM_REFERENCE_H_

#include <cmath>
#include <cstdint>

namespace trainctl::reference {

inline void ResidualNormForward(const double* residual, const double* weight, const double* bias,
                                double* x, double* y, double* mean, double* inverse_deviation,
                                int64_t rows, int64_t width) {
  for (int64_t r = 0; r < rows; ++r) {
    double* xr = x + r * width;
    double sum = 0, squares = 0;
    for (int64_t i = 0; i < width; ++i) {
      if (residual != nullptr) xr[i] += residual[r * width + i];
      sum += xr[i];
    }
    mean[r] = sum / static_cast<double>(width);
    for (int64_t i = 0; i < width; ++i) squares += (xr[i] - mean[r]) * (xr[i] - mean[r]);
    inverse_deviation[r] = 1 / std::sqrt(squares / static_cast<double>(width) + 1e-5);
    for (int64_t i = 0; i < width; ++i) {
      y[r * width + i] = (xr[i] - mean[r]) * inverse_deviation[r] * weight[i] + bias[i];
    }
  }
}

// By the chain rule through mean and deviation, without the algebra of the operation.
inline void ResidualNormBackward(const double* dy, const double* x, const double* mean,
                                 const double* inverse_deviation, const double* weight, double* dx,
                                 double* dweight, double* dbias, int64_t rows, int64_t width) {
  for (int64_t r = 0; r < rows; ++r) {
    const double inverse = inverse_deviation[r], n = static_cast<double>(width);
    double dmean = 0, dinverse = 0;
    for (int64_t i = 0; i < width; ++i) {
      const double d = dy[r * width + i], centred = x[r * width + i] - mean[r];
      dbias[i] += d;
      dweight[i] += d * centred * inverse;
      dinverse += d * weight[i] * centred;
      dmean -= d * weight[i] * inverse;
    }
    const double dvariance = -0.5 * dinverse * inverse * inverse * inverse;
    for (int64_t i = 0; i < width; ++i) {
      const double centred = x[r * width + i] - mean[r];
      dx[r * width + i] +=
          dy[r * width + i] * weight[i] * inverse + dmean / n + dvariance * 2 * centred / n;
    }
  }
}

}  // namespace trainctl::reference

#endif  // TRAINCTL_KERNELS_LAYER_NORM_REFERENCE_H_
