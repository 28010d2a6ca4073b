// Rectified linear unit, fused with the bias of the layer before it.
#ifndef TRAINCTL_KERNELS_RELU_H_
#define TRAINCTL_KERNELS_RELU_H_

#include <cstdint>

namespace trainctl::ops {

// In place: y[rows, width] = max(y + b[width], 0).
void BiasReluForward(const float* b, float* y, int64_t rows, int64_t width);

// In place on dy: dy = y > 0 ? dy * scale : 0, and db[width] += its sum over rows. `y` is the
// output of the forward pass, after dropout if there was any; `scale` is then what dropout
// multiplied with (dropped elements are zero in y), else 1.
void BiasReluBackward(const float* y, float scale, float* dy, float* db, int64_t rows,
                      int64_t width);

}  // namespace trainctl::ops

#endif  // TRAINCTL_KERNELS_RELU_H_
