// Gaussian error linear unit in its tanh form, fused with the bias of the layer before it:
//   gelu(x) = x / 2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x³))).
#ifndef TRAINCTL_KERNELS_GELU_H_
#define TRAINCTL_KERNELS_GELU_H_

#include <cstdint>

namespace trainctl::ops {

// y[rows, width] = gelu(x + b[width]), and in place: x becomes the derivative there, which is all
// that the backward pass needs.
void BiasGeluForward(const float* b, float* x, float* y, int64_t rows, int64_t width);

// In place on dy: dy *= derivative, and db[width] += its sum over rows.
void BiasGeluBackward(const float* derivative, float* dy, float* db, int64_t rows, int64_t width);

}  // namespace trainctl::ops

#endif  // TRAINCTL_KERNELS_GELU_H_
