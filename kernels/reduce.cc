#include "kernels/reduce.h"

#include "kernels/vector.h"

namespace trainctl::ops {
namespace {

TRAINCTL_INLINE double SquaredNormBody(const float* x, int64_t n) {
  Double8 sum[2] = {};
  int64_t i = 0;
  for (; i + 2 * kLanes <= n; i += 2 * kLanes) {
    const Double8 a = __builtin_convertvector(Load(x + i), Double8);
    const Double8 b = __builtin_convertvector(Load(x + i + kLanes), Double8);
    sum[0] += a * a;
    sum[1] += b * b;
  }
  double total = Sum(sum[0] + sum[1]);
  for (; i < n; ++i) total += static_cast<double>(x[i]) * x[i];
  return total;
}

TRAINCTL_INLINE void ScaleBody(float* x, float factor, int64_t n) {
  for (int64_t i = 0; i < n; ++i) x[i] *= factor;
}

}  // namespace

TRAINCTL_MULTIVERSION(double, SquaredNorm, (const float* x, int64_t n), (x, n))
TRAINCTL_MULTIVERSION(void, Scale, (float* x, float factor, int64_t n), (x, factor, n))

}  // namespace trainctl::ops
