#include "kernels/tile.h"

#include <algorithm>

#include "kernels/vector.h"
#include "runtime/base/check.h"

namespace trainctl::ops {
namespace {

TRAINCTL_INLINE void PackPanelsBody(const float* __restrict b, int64_t stride, int64_t k, int64_t n,
                                    float* __restrict panels) {
  for (int64_t first = 0; first < n; first += kPanel) {
    const int64_t columns = std::min(kPanel, n - first);
    for (int64_t r = 0; r < k; ++r, panels += kPanel) {
      const float* row = b + r * stride + first;
      if (columns == kPanel) {
        Store(panels, Load(row));
        Store(panels + kLanes, Load(row + kLanes));
        continue;
      }
      for (int64_t i = 0; i < kPanel; ++i) panels[i] = i < columns ? row[i] : 0.0f;
    }
  }
}

// rows[i][j] becomes rows[j][i].
TRAINCTL_INLINE void Transpose(Float8* rows) {
  Float8 a[8], b[8];
  for (int i = 0; i < 4; ++i) {
    a[2 * i] = __builtin_shufflevector(rows[i], rows[i + 4], 0, 8, 1, 9, 4, 12, 5, 13);
    a[2 * i + 1] = __builtin_shufflevector(rows[i], rows[i + 4], 2, 10, 3, 11, 6, 14, 7, 15);
  }
  // a[2 i] = columns 0 1 | 4 5 and a[2 i + 1] = columns 2 3 | 6 7 of rows i and i + 4, interleaved.
  for (int half = 0; half < 2; ++half) {
    for (int i = 0; i < 2; ++i) {
      const Float8 x = a[2 * i + half], y = a[2 * (i + 2) + half];
      b[4 * half + 2 * i] = __builtin_shufflevector(x, y, 0, 8, 1, 9, 4, 12, 5, 13);
      b[4 * half + 2 * i + 1] = __builtin_shufflevector(x, y, 2, 10, 3, 11, 6, 14, 7, 15);
    }
  }
  // b[4 half + 2 i + odd] = column 2 half + odd | that + 4, of rows i, i + 2, i + 4, i + 6.
  for (int half = 0; half < 2; ++half) {
    for (int odd = 0; odd < 2; ++odd) {
      const Float8 x = b[4 * half + odd], y = b[4 * half + 2 + odd];
      const Float8 low = __builtin_shufflevector(x, y, 0, 8, 1, 9, 4, 12, 5, 13);
      const Float8 high = __builtin_shufflevector(x, y, 2, 10, 3, 11, 6, 14, 7, 15);
      rows[2 * half + odd] = __builtin_shufflevector(low, high, 0, 1, 2, 3, 8, 9, 10, 11);
      rows[2 * half + odd + 4] = __builtin_shufflevector(low, high, 4, 5, 6, 7, 12, 13, 14, 15);
    }
  }
}

TRAINCTL_INLINE void PackTransposedPanelsBody(const float* __restrict b, int64_t stride, int64_t k,
                                              int64_t n, float* __restrict panels) {
  for (int64_t first = 0; first < n; first += kPanel, panels += k * kPanel) {
    const int64_t columns = std::min(kPanel, n - first);
    int64_t r = 0;
    if (columns == kPanel) {
      for (; r + 8 <= k; r += 8) {
        for (int64_t half = 0; half < kPanel; half += 8) {
          Float8 rows[8];
          for (int64_t i = 0; i < 8; ++i) rows[i] = Load(b + (first + half + i) * stride + r);
          Transpose(rows);
          for (int64_t i = 0; i < 8; ++i) Store(panels + (r + i) * kPanel + half, rows[i]);
        }
      }
    }
    for (; r < k; ++r) {
      for (int64_t i = 0; i < kPanel; ++i) {
        panels[r * kPanel + i] = i < columns ? b[(first + i) * stride + r] : 0.0f;
      }
    }
  }
}

template <int kRows, bool kTransposed>
TRAINCTL_INLINE void Panel(const float* __restrict a, int64_t lda, const float* __restrict panel,
                           bool add, float* __restrict c, int64_t ldc, int64_t columns, int64_t k) {
  Float8 sum[kRows][2];
  for (int i = 0; i < kRows; ++i) sum[i][0] = sum[i][1] = Float8{};
  for (int64_t p = 0; p < k; ++p) {
    const Float8 b0 = Load(panel + p * kPanel), b1 = Load(panel + p * kPanel + kLanes);
    for (int i = 0; i < kRows; ++i) {
      const float x = kTransposed ? a[p * lda + i] : a[i * lda + p];
      sum[i][0] += x * b0;
      sum[i][1] += x * b1;
    }
  }
  if (columns == kPanel) {
    for (int i = 0; i < kRows; ++i) {
      float* out = c + i * ldc;
      Store(out, add ? Load(out) + sum[i][0] : sum[i][0]);
      Store(out + kLanes, add ? Load(out + kLanes) + sum[i][1] : sum[i][1]);
    }
    return;
  }
  float rows[kRows * kPanel];
  for (int i = 0; i < kRows; ++i) {
    Store(rows + i * kPanel, sum[i][0]);
    Store(rows + i * kPanel + kLanes, sum[i][1]);
  }
  for (int i = 0; i < kRows; ++i) {
    for (int64_t j = 0; j < columns; ++j) {
      float* out = c + i * ldc + j;
      *out = add ? *out + rows[i * kPanel + j] : rows[i * kPanel + j];
    }
  }
}

template <int kRows, bool kTransposed>
TRAINCTL_INLINE void Rows(const float* a, int64_t lda, const float* panels, int64_t depth, bool add,
                          float* c, int64_t ldc, int64_t m, int64_t n, int64_t k) {
  if constexpr (kRows > 1) {
    if (m < kRows) return Rows<kRows - 1, kTransposed>(a, lda, panels, depth, add, c, ldc, m, n, k);
  }
  for (int64_t first = 0; first < n; first += kPanel, panels += depth * kPanel) {
    Panel<kRows, kTransposed>(a, lda, panels, add, c + first, ldc, std::min(kPanel, n - first), k);
  }
}

TRAINCTL_INLINE void MultiplyBody(const float* a, int64_t lda, const float* panels, int64_t depth,
                                  float* c, int64_t ldc, int64_t m, int64_t n, int64_t k) {
  Rows<kTileRows, false>(a, lda, panels, depth, false, c, ldc, m, n, k);
}

TRAINCTL_INLINE void MultiplyTransposedBody(const float* a, int64_t lda, const float* panels,
                                            int64_t depth, bool add, float* c, int64_t ldc,
                                            int64_t m, int64_t n, int64_t k) {
  Rows<kTileRows, true>(a, lda, panels, depth, add, c, ldc, m, n, k);
}

TRAINCTL_MULTIVERSION(void, Multiply,
                      (const float* a, int64_t lda, const float* panels, int64_t depth, float* c,
                       int64_t ldc, int64_t m, int64_t n, int64_t k),
                      (a, lda, panels, depth, c, ldc, m, n, k))
TRAINCTL_MULTIVERSION(void, MultiplyTransposed,
                      (const float* a, int64_t lda, const float* panels, int64_t depth, bool add,
                       float* c, int64_t ldc, int64_t m, int64_t n, int64_t k),
                      (a, lda, panels, depth, add, c, ldc, m, n, k))

}  // namespace

TRAINCTL_MULTIVERSION(void, PackPanels,
                      (const float* b, int64_t stride, int64_t k, int64_t n, float* panels),
                      (b, stride, k, n, panels))
TRAINCTL_MULTIVERSION(void, PackTransposedPanels,
                      (const float* b, int64_t stride, int64_t k, int64_t n, float* panels),
                      (b, stride, k, n, panels))

void TileMultiply(const float* a, int64_t lda, const float* panels, int64_t depth, float* c,
                  int64_t ldc, int64_t m, int64_t n, int64_t k) {
  CHECK(m > 0 && m <= kTileRows);
  Multiply(a, lda, panels, depth, c, ldc, m, n, k);
}

void TileMultiplyTransposed(const float* a, int64_t lda, const float* panels, int64_t depth,
                            bool add, float* c, int64_t ldc, int64_t m, int64_t n, int64_t k) {
  CHECK(m > 0 && m <= kTileRows);
  MultiplyTransposed(a, lda, panels, depth, add, c, ldc, m, n, k);
}

}  // namespace trainctl::ops
