#include "kernels/attention.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "kernels/tile.h"
#include "kernels/vector.h"

namespace trainctl::ops {
namespace {

// Queries are taken in blocks of this many rows, a multiple of kTileRows: their scores stay in the
// first-level cache for a context of up to about 128, and in the second for thousands.
constexpr int64_t kBlock = 8 * kTileRows;

// Scores are computed in whole panels: the columns of the last one that are too many are masked as
// the future is.
int64_t WholePanels(int64_t columns) { return (columns + kPanel - 1) / kPanel * kPanel; }

// Rows of a head's scores are this far apart.
int64_t ScoreStride(const AttentionShape& a) { return WholePanels(a.context); }

// Lanes are columns i … i + 7 of a row: `v` in columns below n, else `other`.
TRAINCTL_INLINE Float8 Below(int64_t n, int64_t i, Float8 v, Float8 other) {
  const Int8x32 lane = {0, 1, 2, 3, 4, 5, 6, 7};
  return lane < static_cast<int32_t>(n - i) ? v : other;
}

// How many columns of a row with n visible ones are written: whole vectors, and at least as many as
// the other rows of its group read.
TRAINCTL_INLINE int64_t WrittenColumns(int64_t n, int64_t stride) {
  const int64_t columns = (n + kTileRows + kLanes - 1) / kLanes * kLanes;
  return columns < stride ? columns : stride;
}

// Rows first … first + rows of the scores become probabilities over columns 0 … row, zero after.
TRAINCTL_INLINE void SoftmaxBody(float* scores, float* log_sums, float scale, int64_t first,
                                 int64_t rows, int64_t stride) {
  const Float8 lowest = Splat(-__builtin_inff());
  for (int64_t r = 0; r < rows; ++r) {
    float* x = scores + r * stride;
    const int64_t n = first + r + 1, written = WrittenColumns(n, stride);
    Float8 largest8 = lowest;
    for (int64_t i = 0; i < n; i += kLanes) {
      largest8 = Max(Below(n, i, Load(x + i), lowest), largest8);
    }
    const float largest = Max(largest8);
    Float8 sums{};
    for (int64_t i = 0; i < written; i += kLanes) {
      const Float8 e = Below(n, i, Exp((Load(x + i) - largest) * scale), Float8{});
      Store(x + i, e);
      sums += e;
    }
    const float sum = Sum(sums);
    const float inverse = 1.0f / sum;
    for (int64_t i = 0; i < n; i += kLanes) Store(x + i, Load(x + i) * inverse);
    log_sums[r] = largest * scale + std::log(sum);
  }
}

// From scores and their log sums: probabilities, and in place of dp the gradient of the scores,
// scale * p * (dp - delta). Both are zero where causality masks.
TRAINCTL_INLINE void SoftmaxBackwardBody(float* __restrict scores, float* __restrict dp,
                                         const float* log_sums, const float* delta, float scale,
                                         int64_t first, int64_t rows, int64_t stride) {
  for (int64_t r = 0; r < rows; ++r) {
    float* x = scores + r * stride;
    float* d = dp + r * stride;
    const int64_t n = first + r + 1, written = WrittenColumns(n, stride);
    const float log_sum = log_sums[r], dot = delta[r];
    for (int64_t i = 0; i < written; i += kLanes) {
      const Float8 p = Below(n, i, Exp(Load(x + i) * scale - log_sum), Float8{});
      Store(x + i, p);
      Store(d + i, Below(n, i, p * (Load(d + i) - dot) * scale, Float8{}));
    }
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
                      (float* scores, float* log_sums, float scale, int64_t first, int64_t rows,
                       int64_t stride),
                      (scores, log_sums, scale, first, rows, stride))
TRAINCTL_MULTIVERSION(void, SoftmaxBackward,
                      (float* scores, float* dp, const float* log_sums, const float* delta,
                       float scale, int64_t first, int64_t rows, int64_t stride),
                      (scores, dp, log_sums, delta, scale, first, rows, stride))
TRAINCTL_MULTIVERSION(void, RowDots,
                      (const float* dy, const float* y, float* delta, int64_t rows, int64_t columns,
                       int64_t stride),
                      (dy, y, delta, rows, columns, stride))

// Calls body(row, rows, end) for groups of kTileRows rows of one block; end is one after the last
// column that causality leaves.
template <typename Body>
void ForRowGroups(int64_t first, int64_t rows, Body&& body) {
  for (int64_t r = 0; r < rows; r += kTileRows) {
    const int64_t n = std::min(kTileRows, rows - r);
    body(r, n, first + r + n);
  }
}

// The memory of AttentionScratch.
struct HeadScratch {
  HeadScratch(const AttentionShape& a, float* memory) {
    const auto take = [&](int64_t n) { return std::exchange(memory, memory + n); };
    key_columns = take(PanelFloats(a.head_size, a.context));
    value_columns = take(PanelFloats(a.head_size, a.context));
    for (float** rows : {&query_rows, &key_rows, &value_rows, &dy_rows}) {
      *rows = take(PanelFloats(a.context, a.head_size));
    }
    scores = take(kBlock * ScoreStride(a));
    dscores = take(kBlock * ScoreStride(a));
    delta = take(kBlock);
  }
  float *key_columns, *value_columns;                   // kᵀ and vᵀ as panels
  float *query_rows, *key_rows, *value_rows, *dy_rows;  // q, k, v and dy as panels
  float *scores, *dscores, *delta;                      // of one block of queries
};

void HeadForward(const AttentionShape& a, const float* q, float* y, float* log_sums,
                 const HeadScratch& s) {
  const int64_t stride = 3 * a.width(), size = a.head_size, context = a.context;
  const int64_t score_stride = ScoreStride(a);
  const float scale = 1.0f / std::sqrt(static_cast<float>(size));
  PackTransposedPanels(q + a.width(), stride, size, context, s.key_columns);
  PackPanels(q + 2 * a.width(), stride, context, size, s.value_rows);
  for (int64_t first = 0; first < context; first += kBlock) {
    const int64_t rows = std::min(kBlock, context - first);
    ForRowGroups(first, rows, [&](int64_t r, int64_t n, int64_t end) {
      TileMultiply(q + (first + r) * stride, stride, s.key_columns, size,
                   s.scores + r * score_stride, score_stride, n, WholePanels(end), size);
    });
    Softmax(s.scores, log_sums + first, scale, first, rows, score_stride);
    ForRowGroups(first, rows, [&](int64_t r, int64_t n, int64_t end) {
      TileMultiply(s.scores + r * score_stride, score_stride, s.value_rows, context,
                   y + (first + r) * a.width(), a.width(), n, size, end);
    });
  }
}

// What one block of queries adds to the gradients of keys and values, `add`, or sets there.
void BlockKeyGradients(const AttentionShape& a, int64_t first, int64_t rows, bool add, float* dk,
                       float* dv, const HeadScratch& s) {
  const int64_t stride = 3 * a.width(), score_stride = ScoreStride(a), end = first + rows;
  for (int64_t u = 0; u < end; u += kTileRows) {
    const int64_t n = std::min(kTileRows, end - u);
    const int64_t from = std::max<int64_t>(u - first, 0);  // earlier queries do not see key u
    const int64_t at = from * score_stride + u, row = (first + from) * kPanel;
    TileMultiplyTransposed(s.scores + at, score_stride, s.dy_rows + row, a.context, add,
                           dv + u * stride, stride, n, a.head_size, rows - from);
    TileMultiplyTransposed(s.dscores + at, score_stride, s.query_rows + row, a.context, add,
                           dk + u * stride, stride, n, a.head_size, rows - from);
  }
}

void HeadBackward(const AttentionShape& a, const float* dy, const float* q, const float* y,
                  const float* log_sums, float* dq, const HeadScratch& s) {
  const int64_t width = a.width(), stride = 3 * width, size = a.head_size, context = a.context;
  const int64_t score_stride = ScoreStride(a);
  const float scale = 1.0f / std::sqrt(static_cast<float>(size));
  PackTransposedPanels(q + width, stride, size, context, s.key_columns);
  PackTransposedPanels(q + 2 * width, stride, size, context, s.value_columns);
  PackPanels(q, stride, context, size, s.query_rows);
  PackPanels(q + width, stride, context, size, s.key_rows);
  PackPanels(dy, width, context, size, s.dy_rows);
  // From the last block to the first: the last one reaches every key, so it sets the gradients of
  // keys and values and the others add to them.
  for (int64_t first = (context - 1) / kBlock * kBlock; first >= 0; first -= kBlock) {
    const int64_t rows = std::min(kBlock, context - first);
    ForRowGroups(first, rows, [&](int64_t r, int64_t n, int64_t end) {
      TileMultiply(q + (first + r) * stride, stride, s.key_columns, size,
                   s.scores + r * score_stride, score_stride, n, WholePanels(end), size);
      TileMultiply(dy + (first + r) * width, width, s.value_columns, size,
                   s.dscores + r * score_stride, score_stride, n, WholePanels(end), size);
    });
    RowDots(dy + first * width, y + first * width, s.delta, rows, size, width);
    SoftmaxBackward(s.scores, s.dscores, log_sums + first, s.delta, scale, first, rows,
                    score_stride);
    ForRowGroups(first, rows, [&](int64_t r, int64_t n, int64_t end) {
      TileMultiply(s.dscores + r * score_stride, score_stride, s.key_rows, context,
                   dq + (first + r) * stride, stride, n, size, end);
    });
    BlockKeyGradients(a, first, rows, first + rows < context, dq + width, dq + 2 * width, s);
  }
}

}  // namespace

int64_t AttentionScratch(const AttentionShape& shape) {
  return 2 * PanelFloats(shape.head_size, shape.context) +
         4 * PanelFloats(shape.context, shape.head_size) + kBlock * (2 * ScoreStride(shape) + 1);
}

void AttentionForward(const AttentionShape& shape, const float* qkv, float* y, float* log_sums,
                      float* scratch) {
  const HeadScratch head_scratch(shape, scratch);
  for (int64_t s = 0; s < shape.samples; ++s) {
    for (int64_t h = 0; h < shape.heads; ++h) {
      HeadForward(shape, qkv + s * shape.context * 3 * shape.width() + h * shape.head_size,
                  y + s * shape.context * shape.width() + h * shape.head_size,
                  log_sums + (s * shape.heads + h) * shape.context, head_scratch);
    }
  }
}

void AttentionBackward(const AttentionShape& shape, const float* dy, const float* qkv,
                       const float* y, const float* log_sums, float* dqkv, float* scratch) {
  const HeadScratch head_scratch(shape, scratch);
  for (int64_t s = 0; s < shape.samples; ++s) {
    for (int64_t h = 0; h < shape.heads; ++h) {
      const int64_t wide = s * shape.context * 3 * shape.width() + h * shape.head_size;
      const int64_t narrow = s * shape.context * shape.width() + h * shape.head_size;
      HeadBackward(shape, dy + narrow, qkv + wide, y + narrow,
                   log_sums + (s * shape.heads + h) * shape.context, dqkv + wide, head_scratch);
    }
  }
}

}  // namespace trainctl::ops
