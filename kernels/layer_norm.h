// Layer normalisation, fused with the addition to the residual stream before it.
#ifndef TRAINCTL_KERNELS_LAYER_NORM_H_
#define TRAINCTL_KERNELS_LAYER_NORM_H_

#include <cstdint>

namespace trainctl::ops {

constexpr float kNormEpsilon = 1e-5f;  // added to the variance

// In place on x[rows, width]: x += residual (null: nothing is added). Then
//   y = (x - mean) * inverse_deviation * weight[width] + bias[width], by row.
// mean[rows] and inverse_deviation[rows] are kept for the backward pass.
void ResidualNormForward(const float* residual, const float* weight, const float* bias, float* x,
                         float* y, float* mean, float* inverse_deviation, int64_t rows,
                         int64_t width);

// dx[rows, width] += the gradient through the norm: dx holds the gradient of the residual stream
// above, and then that below. Adds to dweight[width] and dbias[width].
void ResidualNormBackward(const float* dy, const float* x, const float* mean,
                          const float* inverse_deviation, const float* weight, float* dx,
                          float* dweight, float* dbias, int64_t rows, int64_t width);

}  // namespace trainctl::ops

#endif  // TRAINCTL_KERNELS_LAYER_NORM_H_
