#include "kernels/attention.h"

#include <cblas.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/vector.h"

namespace trainctl::ops {
namespace {

// Queries are taken in blocks of this many rows: a block needs only the keys up to its last row,
// so small blocks skip more of what causality masks, and large ones make better matrix products.
constexpr int64_t kBlock = 64;

blasint Int(int64_t n) { return static_cast<blasint>(n); }

// c[m, n] (+)= a · b with row strides; a or b may be transposed.
void Product(bool at, bool bt, int64_t m, int64_t n, int64_t k, float alpha, const float* a,
             int64_t lda, const float* b, int64_t ldb, float beta, float* c, int64_t ldc) {
  cblas_sgemm(CblasRowMajor, at ? CblasTrans : CblasNoTrans, bt ? CblasTrans : CblasNoTrans, Int(m),
              Int(n), Int(k), alpha, a, Int(lda), b, Int(ldb), beta, c, Int(ldc));
}

// Rows first … first + rows of the scores become probabilities over columns 0 … row, zero after.
TRAINCTL_INLINE void SoftmaxBody(float* scores, float* log_sums, int64_t first, int64_t rows,
                                 int64_t columns) {
  for (int64_t r = 0; r < rows; ++r) {
    float* x = scores + r * columns;
    const int64_t n = first + r + 1;
    Float8 largest8 = Splat(-__builtin_inff());
    int64_t i = 0;
    for (; i + kLanes <= n; i += kLanes) largest8 = Max(Load(x + i), largest8);
    float largest = Max(largest8);
    for (; i < n; ++i) largest = x[i] > largest ? x[i] : largest;
    Float8 sums{};
    ForVectors(
        n, [&](int64_t at, auto lanes) __attribute__((always_inline)) {
          const Float8 e = Exp(Load(x + at, lanes) - largest);
          Store(x + at, e, lanes);
          sums += Keep(e, lanes);
        });
    const float sum = Sum(sums);
    const float inverse = 1.0f / sum;
    for (i = 0; i < n; ++i) x[i] *= inverse;
    for (; i < columns; ++i) x[i] = 0;
    log_sums[r] = largest + std::log(sum);
  }
}

// From scores and their log sums: probabilities, and in place of dp the gradient of the scores,
// scale * p * (dp - delta).
TRAINCTL_INLINE void SoftmaxBackwardBody(float* __restrict scores, float* __restrict dp,
                                         const float* log_sums, const float* delta, float scale,
                                         int64_t first, int64_t rows, int64_t columns) {
  for (int64_t r = 0; r < rows; ++r) {
    float* x = scores + r * columns;
    float* d = dp + r * columns;
    const int64_t n = first + r + 1;
    const float log_sum = log_sums[r], dot = delta[r];
    ForVectors(
        n, [&](int64_t at, auto lanes) __attribute__((always_inline)) {
          const Float8 p = Exp(Load(x + at, lanes) - log_sum);
          Store(x + at, p, lanes);
          Store(d + at, p * (Load(d + at, lanes) - dot) * scale, lanes);
        });
    for (int64_t i = n; i < columns; ++i) x[i] = d[i] = 0;
  }
}

// delta[r] = sum over the head's columns of dy * y.
TRAINCTL_INLINE void RowDotsBody(const float* dy, const float* y, float* delta, int64_t rows,
                                 int64_t columns, int64_t stride) {
  for (int64_t r = 0; r < rows; ++r) {
    Float8 sum{};
    ForVectors(
        columns, [&](int64_t i, auto lanes) __attribute__((always_inline)) {
          sum += Load(dy + r * stride + i, lanes) * Load(y + r * stride + i, lanes);
        });
    delta[r] = Sum(sum);
  }
}

TRAINCTL_MULTIVERSION(void, Softmax,
                      (float* scores, float* log_sums, int64_t first, int64_t rows,
                       int64_t columns),
                      (scores, log_sums, first, rows, columns))
TRAINCTL_MULTIVERSION(void, SoftmaxBackward,
                      (float* scores, float* dp, const float* log_sums, const float* delta,
                       float scale, int64_t first, int64_t rows, int64_t columns),
                      (scores, dp, log_sums, delta, scale, first, rows, columns))
TRAINCTL_MULTIVERSION(void, RowDots,
                      (const float* dy, const float* y, float* delta, int64_t rows, int64_t columns,
                       int64_t stride),
                      (dy, y, delta, rows, columns, stride))

void HeadForward(const AttentionShape& a, const float* q, float* y, float* log_sums,
                 float* scores) {
  const int64_t stride = 3 * a.width(), size = a.head_size;
  const float* k = q + a.width();
  const float* v = k + a.width();
  const float scale = 1.0f / std::sqrt(static_cast<float>(size));
  for (int64_t first = 0; first < a.context; first += kBlock) {
    const int64_t rows = std::min(kBlock, a.context - first), end = first + rows;
    Product(false, true, rows, end, size, scale, q + first * stride, stride, k, stride, 0, scores,
            end);
    Softmax(scores, log_sums + first, first, rows, end);
    Product(false, false, rows, size, end, 1, scores, end, v, stride, 0, y + first * a.width(),
            a.width());
  }
}

void HeadBackward(const AttentionShape& a, const float* dy, const float* q, const float* y,
                  const float* log_sums, float* dq, float* scratch) {
  const int64_t stride = 3 * a.width(), size = a.head_size;
  const float* k = q + a.width();
  const float* v = k + a.width();
  float* dk = dq + a.width();
  float* dv = dk + a.width();
  float* p = scratch;
  float* dp = p + kBlock * a.context;
  float* delta = dp + kBlock * a.context;
  const float scale = 1.0f / std::sqrt(static_cast<float>(size));
  // From the last block to the first: the last one reaches every key, so it overwrites dk and dv
  // and the others add.
  for (int64_t first = (a.context - 1) / kBlock * kBlock; first >= 0; first -= kBlock) {
    const int64_t rows = std::min(kBlock, a.context - first), end = first + rows;
    const float beta = end == a.context ? 0.0f : 1.0f;
    const float* qb = q + first * stride;
    const float* dyb = dy + first * a.width();
    RowDots(dyb, y + first * a.width(), delta, rows, size, a.width());
    Product(false, true, rows, end, size, scale, qb, stride, k, stride, 0, p, end);
    Product(false, true, rows, end, size, 1, dyb, a.width(), v, stride, 0, dp, end);
    SoftmaxBackward(p, dp, log_sums + first, delta, scale, first, rows, end);
    Product(true, false, end, size, rows, 1, p, end, dyb, a.width(), beta, dv, stride);
    Product(true, false, end, size, rows, 1, dp, end, qb, stride, beta, dk, stride);
    Product(false, false, rows, size, end, 1, dp, end, k, stride, 0, dq + first * stride, stride);
  }
}

}  // namespace

int64_t AttentionScratch(const AttentionShape& shape) { return kBlock * (2 * shape.context + 1); }

void AttentionForward(const AttentionShape& shape, const float* qkv, float* y, float* log_sums,
                      float* scratch) {
  for (int64_t s = 0; s < shape.samples; ++s) {
    for (int64_t h = 0; h < shape.heads; ++h) {
      HeadForward(shape, qkv + s * shape.context * 3 * shape.width() + h * shape.head_size,
                  y + s * shape.context * shape.width() + h * shape.head_size,
                  log_sums + (s * shape.heads + h) * shape.context, scratch);
    }
  }
}

void AttentionBackward(const AttentionShape& shape, const float* dy, const float* qkv,
                       const float* y, const float* log_sums, float* dqkv, float* scratch) {
  for (int64_t s = 0; s < shape.samples; ++s) {
    for (int64_t h = 0; h < shape.heads; ++h) {
      const int64_t wide = s * shape.context * 3 * shape.width() + h * shape.head_size;
      const int64_t narrow = s * shape.context * shape.width() + h * shape.head_size;
      HeadBackward(shape, dy + narrow, qkv + wide, y + narrow,
                   log_sums + (s * shape.heads + h) * shape.context, dqkv + wide, scratch);
    }
  }
}

}  // namespace trainctl::ops
