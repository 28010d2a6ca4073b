#include "kernels/relu.h"

#include "kernels/vector.h"

namespace trainctl::ops {
namespace {

TRAINCTL_INLINE void BiasReluForwardBody(const float* __restrict b, float* __restrict y,
                                         int64_t rows, int64_t width) {
  for (int64_t r = 0; r < rows; ++r) {
    float* row = y + r * width;
    ForVectors(
        width, [&](int64_t i, auto lanes) __attribute__((always_inline)) {
          const Float8 v = Load(row + i, lanes) + Load(b + i, lanes);
          Store(row + i, v < 0.0f ? Float8{} : v, lanes);
        });
  }
}

// One row group: kRows rows are summed before the sum goes to db, which saves most of the traffic
// to db and most of the rounding.
template <int kRows>
TRAINCTL_INLINE void BackwardRows(const float* __restrict y, float scale, float* __restrict dy,
                                  float* __restrict db, int64_t width) {
  ForVectors(
      width, [&](int64_t i, auto lanes) __attribute__((always_inline)) {
        Float8 v[kRows];
        for (int k = 0; k < kRows; ++k) {
          const Float8 d = Load(dy + k * width + i, lanes) * scale;
          v[k] = Load(y + k * width + i, lanes) > 0.0f ? d : Float8{};
          Store(dy + k * width + i, v[k], lanes);
        }
        Float8 sum = v[0];
        for (int k = 1; k < kRows; ++k) sum += v[k];
        Store(db + i, Load(db + i, lanes) + sum, lanes);
      });
}

TRAINCTL_INLINE void BiasReluBackwardBody(const float* y, float scale, float* dy, float* db,
                                          int64_t rows, int64_t width) {
  int64_t r = 0;
  for (; r + 4 <= rows; r += 4) {
    BackwardRows<4>(y + r * width, scale, dy + r * width, db, width);
  }
  for (; r < rows; ++r) BackwardRows<1>(y + r * width, scale, dy + r * width, db, width);
}

}  // namespace

TRAINCTL_MULTIVERSION(void, BiasReluForward,
                      (const float* b, float* y, int64_t rows, int64_t width), (b, y, rows, width))
TRAINCTL_MULTIVERSION(void, BiasReluBackward,
                      (const float* y, float scale, float* dy, float* db, int64_t rows,
                       int64_t width),
                      (y, scale, dy, db, rows, width))

}  // namespace trainctl::ops
