// Reductions and scaling over whole arrays.
#ifndef TRAINCTL_KERNELS_REDUCE_H_
#define TRAINCTL_KERNELS_REDUCE_H_

#include <cstdint>

namespace trainctl::ops {

// Sum of x[i]^2, in double and in a fixed order.
double SquaredNorm(const float* x, int64_t n);

// In place: x *= factor.
void Scale(float* x, float factor, int64_t n);

}  // namespace trainctl::ops

#endif  // TRAINCTL_KERNELS_REDUCE_H_
