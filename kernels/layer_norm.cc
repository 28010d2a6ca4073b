#include "kernels/layer_norm.h"

#include "kernels/vector.h"

namespace trainctl::ops {
namespace {

TRAINCTL_INLINE void ResidualNormForwardBody(const float* __restrict residual,
                                             const float* __restrict weight,
                                             const float* __restrict bias, float* __restrict x,
                                             float* __restrict y, float* __restrict mean,
                                             float* __restrict inverse_deviation, int64_t rows,
                                             int64_t width) {
  const float share = 1.0f / static_cast<float>(width);
  for (int64_t r = 0; r < rows; ++r) {
    float* xr = x + r * width;
    float* yr = y + r * width;
    Float8 sum{};
    ForVectors(
        width, [&](int64_t i, auto lanes) __attribute__((always_inline)) {
          Float8 v = Load(xr + i, lanes);
          if (residual != nullptr) {
            v += Load(residual + r * width + i, lanes);
            Store(xr + i, v, lanes);
          }
          sum += v;
        });
    const float m = Sum(sum) * share;
    Float8 squares{};
    ForVectors(
        width, [&](int64_t i, auto lanes) __attribute__((always_inline)) {
          const Float8 d = Keep(Load(xr + i, lanes) - m, lanes);
          squares += d * d;
        });
    const float inverse = 1.0f / __builtin_sqrtf(Sum(squares) * share + kNormEpsilon);
    mean[r] = m;
    inverse_deviation[r] = inverse;
    ForVectors(
        width, [&](int64_t i, auto lanes) __attribute__((always_inline)) {
          const Float8 scaled = (Load(xr + i, lanes) - m) * inverse;
          Store(yr + i, scaled * Load(weight + i, lanes) + Load(bias + i, lanes), lanes);
        });
  }
}

// With g = dy * weight and z the normalised x: dx += (g - mean(g) - z mean(g z)) / deviation.
template <int kRows>
TRAINCTL_INLINE void BackwardRows(const float* __restrict dy, const float* __restrict x,
                                  const float* __restrict mean, const float* __restrict inverse,
                                  const float* __restrict weight, float* __restrict dx,
                                  float* __restrict dweight, float* __restrict dbias,
                                  int64_t width) {
  const float share = 1.0f / static_cast<float>(width);
  float mean_g[kRows], mean_gz[kRows];
  for (int k = 0; k < kRows; ++k) {
    Float8 sum{}, products{};
    ForVectors(
        width, [&](int64_t i, auto lanes) __attribute__((always_inline)) {
          const Float8 g = Load(dy + k * width + i, lanes) * Load(weight + i, lanes);
          sum += g;
          products += g * (Load(x + k * width + i, lanes) - mean[k]);
        });
    mean_g[k] = Sum(sum) * share;
    mean_gz[k] = Sum(products) * share * inverse[k];
  }
  ForVectors(
      width, [&](int64_t i, auto lanes) __attribute__((always_inline)) {
        const Float8 w = Load(weight + i, lanes);
        Float8 sum{}, products{};
        for (int k = 0; k < kRows; ++k) {
          const int64_t at = k * width + i;
          const Float8 d = Load(dy + at, lanes);
          const Float8 z = (Load(x + at, lanes) - mean[k]) * inverse[k];
          sum += d;
          products += d * z;
          const Float8 through = (d * w - mean_g[k] - z * mean_gz[k]) * inverse[k];
          Store(dx + at, Load(dx + at, lanes) + through, lanes);
        }
        Store(dbias + i, Load(dbias + i, lanes) + sum, lanes);
        Store(dweight + i, Load(dweight + i, lanes) + products, lanes);
      });
}

TRAINCTL_INLINE void ResidualNormBackwardBody(const float* dy, const float* x, const float* mean,
                                              const float* inverse, const float* weight, float* dx,
                                              float* dweight, float* dbias, int64_t rows,
                                              int64_t width) {
  int64_t r = 0;
  for (; r + 4 <= rows; r += 4) {
    BackwardRows<4>(dy + r * width, x + r * width, mean + r, inverse + r, weight, dx + r * width,
                    dweight, dbias, width);
  }
  for (; r < rows; ++r) {
    BackwardRows<1>(dy + r * width, x + r * width, mean + r, inverse + r, weight, dx + r * width,
                    dweight, dbias, width);
  }
}

}  // namespace

TRAINCTL_MULTIVERSION(void, ResidualNormForward,
                      (const float* residual, const float* weight, const float* bias, float* x,
                       float* y, float* mean, float* inverse_deviation, int64_t rows,
                       int64_t width),
                      (residual, weight, bias, x, y, mean, inverse_deviation, rows, width))
TRAINCTL_MULTIVERSION(void, ResidualNormBackward,
                      (const float* dy, const float* x, const float* mean,
                       const float* inverse_deviation, const float* weight, float* dx,
                       float* dweight, float* dbias, int64_t rows, int64_t width),
                      (dy, x, mean, inverse_deviation, weight, dx, dweight, dbias, rows, width))

}  // namespace trainctl::ops
