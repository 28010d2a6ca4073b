#include "kernels/gelu.h"

#include "kernels/vector.h"

namespace trainctl::ops {
namespace {

TRAINCTL_INLINE void BiasGeluForwardBody(const float* __restrict b, float* __restrict x,
                                         float* __restrict y, int64_t rows, int64_t width) {
  // (1 + tanh u) / 2 is the logistic function of 2 u, which needs one exponential and has no
  // cancellation for negative x.
  constexpr float kSlope = 1.59576912f;  // 2 sqrt(2 / pi)
  constexpr float kCubic = 0.044715f * 1.59576912f;
  for (int64_t r = 0; r < rows; ++r) {
    float* xr = x + r * width;
    float* yr = y + r * width;
    ForVectors(
        width, [&](int64_t i, auto lanes) __attribute__((always_inline)) {
          const Float8 v = Load(xr + i, lanes) + Load(b + i, lanes);
          const Float8 square = v * v;
          const Float8 e = Exp(-v * (square * kCubic + kSlope));
          const Float8 s = 1.0f / (1.0f + e);
          Store(yr + i, v * s, lanes);
          // 1 - s without its cancellation; e may be infinite, where s is zero.
          const Float8 rest = e > 1e30f ? Splat(1.0f) : e * s;
          const Float8 slope = square * (3 * kCubic) + kSlope;
          Store(xr + i, s + (v * slope) * (s * rest), lanes);
        });
  }
}

template <int kRows>
TRAINCTL_INLINE void BackwardRows(const float* __restrict derivative, float* __restrict dy,
                                  float* __restrict db, int64_t width) {
  ForVectors(
      width, [&](int64_t i, auto lanes) __attribute__((always_inline)) {
        Float8 v[kRows];
        for (int k = 0; k < kRows; ++k) {
          v[k] = Load(dy + k * width + i, lanes) * Load(derivative + k * width + i, lanes);
          Store(dy + k * width + i, v[k], lanes);
        }
        Float8 sum = v[0];
        for (int k = 1; k < kRows; ++k) sum += v[k];
        Store(db + i, Load(db + i, lanes) + sum, lanes);
      });
}

TRAINCTL_INLINE void BiasGeluBackwardBody(const float* derivative, float* dy, float* db,
                                          int64_t rows, int64_t width) {
  int64_t r = 0;
  for (; r + 4 <= rows; r += 4) {
    BackwardRows<4>(derivative + r * width, dy + r * width, db, width);
  }
  for (; r < rows; ++r) BackwardRows<1>(derivative + r * width, dy + r * width, db, width);
}

}  // namespace

TRAINCTL_MULTIVERSION(void, BiasGeluForward,
                      (const float* b, float* x, float* y, int64_t rows, int64_t width),
                      (b, x, y, rows, width))
TRAINCTL_MULTIVERSION(void, BiasGeluBackward,
                      (const float* derivative, float* dy, float* db, int64_t rows, int64_t width),
                      (derivative, dy, db, rows, width))

}  // namespace trainctl::ops
