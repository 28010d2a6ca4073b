// Small matrix products for operations whose matrices are too small for OpenBLAS's packing to pay:
// one factor is read in place, the other is packed into panels of 16 columns.
#ifndef TRAINCTL_KERNELS_TILE_H_
#define TRAINCTL_KERNELS_TILE_H_

#include <cstdint>

namespace trainctl::ops {

constexpr int64_t kTileRows = 6;  // with 16 columns the sums fill twelve vector registers
constexpr int64_t kPanel = 16;

// A matrix b[k, n] as panels: panel j holds columns 16 j … 16 j + 15 of every row, row after row,
// padded with zeros.
inline int64_t PanelFloats(int64_t k, int64_t n) { return (n + kPanel - 1) / kPanel * kPanel * k; }

// Packs b[k, n], whose rows are `stride` floats apart.
void PackPanels(const float* b, int64_t stride, int64_t k, int64_t n, float* panels);
// Packs the transpose of b[n, k].
void PackTransposedPanels(const float* b, int64_t stride, int64_t k, int64_t n, float* panels);

// c[m, n] = a[m, k] · b. b has `depth` rows, of which `panels` starts at the first that is used:
// panels are 16 depth floats apart. REQUIRES m <= kTileRows. Rows of a and c are lda and ldc apart.
void TileMultiply(const float* a, int64_t lda, const float* panels, int64_t depth, float* c,
                  int64_t ldc, int64_t m, int64_t n, int64_t k);
// c[m, n] = a[k, m]ᵀ · b, or += with `add`.
void TileMultiplyTransposed(const float* a, int64_t lda, const float* panels, int64_t depth,
                            bool add, float* c, int64_t ldc, int64_t m, int64_t n, int64_t k);

}  // namespace trainctl::ops

#endif  // TRAINCTL_KERNELS_TILE_H_
