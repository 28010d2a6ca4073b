#include "kernels/linear.h"

#include <cblas.h>

#include <cstring>

#include "kernels/vector.h"

namespace trainctl::ops {
namespace {

TRAINCTL_INLINE void BiasBackwardBody(const float* __restrict dy, float* __restrict db,
                                      int64_t rows, int64_t out) {
  int64_t r = 0;
  for (; r + 4 <= rows; r += 4) {
    const float* a = dy + r * out;
    ForVectors(
        out, [&](int64_t i, auto lanes) __attribute__((always_inline)) {
          const Float8 sum = (Load(a + i, lanes) + Load(a + out + i, lanes)) +
                             (Load(a + 2 * out + i, lanes) + Load(a + 3 * out + i, lanes));
          Store(db + i, Load(db + i, lanes) + sum, lanes);
        });
  }
  for (; r < rows; ++r) {
    const float* a = dy + r * out;
    for (int64_t i = 0; i < out; ++i) db[i] += a[i];
  }
}

blasint Int(int64_t n) { return static_cast<blasint>(n); }

// OpenBLAS's own pass that clears the output (beta = 0) is several times slower than memset.
void Clear(float* y, int64_t n) { std::memset(y, 0, static_cast<size_t>(n) * sizeof(float)); }

}  // namespace

void LinearForward(const float* x, const float* w, float* y, int64_t rows, int64_t in,
                   int64_t out) {
  Clear(y, rows * out);
  cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, Int(rows), Int(out), Int(in), 1.0f, x,
              Int(in), w, Int(in), 1.0f, y, Int(out));
}

void LinearBiasForward(const float* x, const float* w, const float* b, float* y, int64_t rows,
                       int64_t in, int64_t out) {
  // y must be written before the product in any case; instead of zeros, by the bias.
  for (int64_t r = 0; r < rows; ++r) {
    std::memcpy(y + r * out, b, static_cast<size_t>(out) * sizeof(float));
  }
  cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, Int(rows), Int(out), Int(in), 1.0f, x,
              Int(in), w, Int(in), 1.0f, y, Int(out));
}

void LinearBackwardInput(const float* dy, const float* w, float* dx, int64_t rows, int64_t in,
                         int64_t out) {
  Clear(dx, rows * in);
  cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, Int(rows), Int(in), Int(out), 1.0f, dy,
              Int(out), w, Int(in), 1.0f, dx, Int(in));
}

void LinearBackwardWeight(const float* dy, const float* x, float* dw, int64_t rows, int64_t in,
                          int64_t out) {
  cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, Int(out), Int(in), Int(rows), 1.0f, dy,
              Int(out), x, Int(in), 1.0f, dw, Int(in));
}

TRAINCTL_MULTIVERSION(void, BiasBackward, (const float* dy, float* db, int64_t rows, int64_t out),
                      (dy, db, rows, out))

}  // namespace trainctl::ops
