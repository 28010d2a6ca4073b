// Attention on tensor cores, for 16-bit types. A block of four warps takes a tile of rows of one
// head; each warp owns its rows from the first product to the last, so that warps only share what
// they read. Reads of the next tile run behind the products of this one.
#ifndef TRAINCTL_KERNELS_CUDA_ATTENTION_TENSOR_CORE_CUH_
#define TRAINCTL_KERNELS_CUDA_ATTENTION_TENSOR_CORE_CUH_

#include "kernels/cuda/attention_tiles.cuh"

namespace trainctl::cuda::attention {

constexpr int kWarps = 4;
constexpr int kThreads = kWarps * 32;
constexpr int kTile = 64;  // rows of the matrix that is walked over
constexpr float kLog2e = 1.44269504088896341f;

// Where one head's q, k and v begin and how rows follow each other.
template <typename T>
struct HeadRows {
  __device__ __forceinline__ HeadRows(T* qkv, int context, int heads, int head_size)
      : sample(blockIdx.y / heads), head(blockIdx.y % heads), width(int64_t{heads} * head_size) {
    q = qkv + (int64_t{sample} * context * 3 * width) + head * head_size;
    k = q + width;
    v = k + width;
  }
  // The same head in y[samples, context, width].
  template <typename Y>
  __device__ __forceinline__ Y* Of(Y* y, int context, int head_size) const {
    return y + int64_t{sample} * context * width + head * head_size;
  }
  int sample, head;
  int64_t width;
  T *q, *k, *v;
};

// acc[strip][n] += left rows · tileᵀ for kColumns tile rows from `column` on.
template <typename T, int kD, int kColumns, int kStrips>
__device__ __forceinline__ void ProductTransposed(const uint32_t (&left)[kStrips][kD / 16][4],
                                                  uint32_t tile, int column,
                                                  float (&acc)[kStrips][kColumns / 8][4]) {
#pragma unroll
  for (int step = 0; step < kD / 16; ++step) {
#pragma unroll
    for (int n = 0; n < kColumns / 8; n += 2) {
      uint32_t b[4];
      Tile<kD>::RightOfTransposed(tile, column + n * 8, step, b);
#pragma unroll
      for (int strip = 0; strip < kStrips; ++strip) {
        HalfWord<T>::Mma(acc[strip][n], left[strip][step], b[0], b[1]);
        HalfWord<T>::Mma(acc[strip][n + 1], left[strip][step], b[2], b[3]);
      }
    }
  }
}

// The accumulators of 16 columns as a left operand.
template <typename T>
__device__ __forceinline__ void AsLeft(const float (&first)[4], const float (&second)[4],
                                       uint32_t (&a)[4]) {
  a[0] = HalfWord<T>::Pack(first[0], first[1]);
  a[1] = HalfWord<T>::Pack(first[2], first[3]);
  a[2] = HalfWord<T>::Pack(second[0], second[1]);
  a[3] = HalfWord<T>::Pack(second[2], second[3]);
}

// acc[strip][kD columns] += p (kRows columns, in accumulators) · tile rows from `row` on.
template <typename T, int kD, int kRows, int kStrips>
__device__ __forceinline__ void Product(const float (&p)[kStrips][kRows / 8][4], uint32_t tile,
                                        int row, float (&acc)[kStrips][kD / 8][4]) {
#pragma unroll
  for (int step = 0; step < kRows / 16; ++step) {
    uint32_t a[kStrips][4];
#pragma unroll
    for (int strip = 0; strip < kStrips; ++strip) {
      AsLeft<T>(p[strip][2 * step], p[strip][2 * step + 1], a[strip]);
    }
#pragma unroll
    for (int n = 0; n < kD / 8; n += 2) {
      uint32_t b[4];
      Tile<kD>::Right(tile, row + 16 * step, n, b);
#pragma unroll
      for (int strip = 0; strip < kStrips; ++strip) {
        HalfWord<T>::Mma(acc[strip][n], a[strip], b[0], b[1]);
        HalfWord<T>::Mma(acc[strip][n + 1], a[strip], b[2], b[3]);
      }
    }
  }
}

__device__ __forceinline__ float MaxOfQuad(float x) {
  x = fmaxf(x, __shfl_xor_sync(0xffffffff, x, 1));
  return fmaxf(x, __shfl_xor_sync(0xffffffff, x, 2));
}
__device__ __forceinline__ float SumOfQuad(float x) {
  x += __shfl_xor_sync(0xffffffff, x, 1);
  return x + __shfl_xor_sync(0xffffffff, x, 2);
}

// ---- forward ----

// Each warp owns kStrips strips of 16 rows, so that each tile read serves all of them.
template <int kD>
struct ForwardShape {
  static constexpr int kStrips = kD > 64 ? 1 : 2;
  static constexpr int kRows = kWarps * 16 * kStrips;
  static constexpr int kTileBytes = kTile * kD * 2;
  static constexpr int kBytes = kRows * kD * 2 + 4 * kTileBytes;
  static constexpr int kResident = kD > 64 ? 1 : 2;  // blocks on a multiprocessor
};

// Scores of positions later than the row's own become those of nothing. `column` is that of the
// first score, `top` the position of row 0 of the strip.
template <int kColumns>
__device__ __forceinline__ void HideLater(float (&s)[kColumns / 8][4], int column, int top) {
  const int row = (threadIdx.x & 31) >> 2, pair = threadIdx.x & 3;
#pragma unroll
  for (int n = 0; n < kColumns / 8; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (column + n * 8 + pair * 2 + (i & 1) > top + row + (i >> 1) * 8) s[n][i] = -INFINITY;
    }
  }
}

// One strip's softmax over a tile of scores, which become probabilities relative to the new largest
// score; `out` and `sum` are scaled to match.
template <int kD>
__device__ __forceinline__ void OnlineSoftmax(float (&s)[kTile / 8][4], float scale,
                                              float (&largest)[2], float (&sum)[2],
                                              float (&out)[kD / 8][4]) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float m = s[0][2 * half];
#pragma unroll
    for (int n = 0; n < kTile / 8; ++n) m = fmaxf(m, fmaxf(s[n][2 * half], s[n][2 * half + 1]));
    m = fmaxf(largest[half], MaxOfQuad(m));
    const float shrink = Exp2((largest[half] - m) * scale);
    const float offset = m * scale;
    largest[half] = m;
    float added = 0;
#pragma unroll
    for (int n = 0; n < kTile / 8; ++n) {
#pragma unroll
      for (int i = 2 * half; i < 2 * half + 2; ++i) {
        s[n][i] = Exp2(s[n][i] * scale - offset);
        added += s[n][i];
      }
    }
    sum[half] = sum[half] * shrink + added;
#pragma unroll
    for (int n = 0; n < kD / 8; ++n) {
      out[n][2 * half] *= shrink;
      out[n][2 * half + 1] *= shrink;
    }
  }
}

template <typename T, int kD>
__global__ void __launch_bounds__(kThreads, ForwardShape<kD>::kResident)
    ForwardKernel(const T* qkv, T* y, float* log_sums, int context, int heads, float scale) {
  using Shape = ForwardShape<kD>;
  extern __shared__ __align__(128) uint8_t shared[];
  const uint32_t q_tile = static_cast<uint32_t>(__cvta_generic_to_shared(shared));
  const uint32_t kv_tiles = q_tile + Shape::kRows * kD * 2;  // k, v, then k, v of the next
  const HeadRows<const T> rows(qkv, context, heads, kD);
  const int64_t stride = 3 * rows.width;
  // The rows with most to see start first.
  const int first = static_cast<int>(gridDim.x - 1 - blockIdx.x) * Shape::kRows;
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  const int row = lane >> 2, pair = lane & 3;
  const int own = warp * 16 * Shape::kStrips;  // first row of this warp in the tile
  const int tiles = (min(context, first + Shape::kRows) + kTile - 1) / kTile;

  const auto load = [&](int tile) {
    const uint32_t to = kv_tiles + (tile & 1) * 2 * Shape::kTileBytes;
    Tile<kD>::template Load<kTile, kThreads>(to, rows.k, stride, tile * kTile, context);
    Tile<kD>::template Load<kTile, kThreads>(to + Shape::kTileBytes, rows.v, stride, tile * kTile,
                                             context);
  };
  Tile<kD>::template Load<Shape::kRows, kThreads>(q_tile, rows.q, stride, first, context);
  load(0);
  CommitCopies();

  uint32_t q[Shape::kStrips][kD / 16][4];
  float out[Shape::kStrips][kD / 8][4] = {};
  float largest[Shape::kStrips][2], sum[Shape::kStrips][2] = {};
#pragma unroll
  for (int strip = 0; strip < Shape::kStrips; ++strip) {
    largest[strip][0] = largest[strip][1] = -INFINITY;
  }
  for (int tile = 0; tile < tiles; ++tile) {
    if (tile + 1 < tiles) load(tile + 1);
    CommitCopies();
    WaitCopies<1>();
    __syncthreads();
    if (tile == 0) {
#pragma unroll
      for (int strip = 0; strip < Shape::kStrips; ++strip) {
#pragma unroll
        for (int step = 0; step < kD / 16; ++step) {
          Tile<kD>::Left(q_tile, own + strip * 16, step, q[strip][step]);
        }
      }
    }
    const uint32_t k_tile = kv_tiles + (tile & 1) * 2 * Shape::kTileBytes;
    const int column = tile * kTile;
    if (column < first + own + 16 * Shape::kStrips) {  // something of it is seen
      float s[Shape::kStrips][kTile / 8][4] = {};
      ProductTransposed<T, kD, kTile>(q, k_tile, 0, s);
#pragma unroll
      for (int strip = 0; strip < Shape::kStrips; ++strip) {
        const int top = first + own + strip * 16;
        if (column + kTile - 1 > top) HideLater<kTile>(s[strip], column, top);
        OnlineSoftmax<kD>(s[strip], scale * kLog2e, largest[strip], sum[strip], out[strip]);
      }
      Product<T, kD, kTile>(s, k_tile + Shape::kTileBytes, 0, out);
    }
    __syncthreads();
  }

  T* to = rows.Of(y, context, kD);
#pragma unroll
  for (int strip = 0; strip < Shape::kStrips; ++strip) {
    const int at = own + strip * 16;
    const float total[2] = {SumOfQuad(sum[strip][0]), SumOfQuad(sum[strip][1])};
    // This warp's rows of q are in registers, so that their place is free.
    StoreAccumulators<T, kD>(q_tile, at, out[strip], 1 / total[0], 1 / total[1]);
    __syncwarp();
    WriteRows<T, kD>(q_tile, at, to, rows.width, first + at, context);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int t = first + at + row + half * 8;
      if (pair == 0 && t < context) {
        log_sums[int64_t{blockIdx.y} * context + t] =
            largest[strip][half] * scale + logf(total[half]);
      }
    }
  }
}

// ---- backward ----

// The gradient of q, and for each row the dot product of dy and y.
template <int kD>
struct QueryShape {
  static constexpr int kStrips = kD > 64 ? 1 : 2;
  static constexpr int kRows = kWarps * 16 * kStrips;
  static constexpr int kTileBytes = kTile * kD * 2;
  static constexpr int kBytes = 2 * kRows * kD * 2 + 4 * kTileBytes;
  static constexpr int kResident = kD > 64 ? 1 : 2;
  static constexpr int kPart = 32;  // columns of scores at a time
};

// For rows `row` and `row + 8` of the strip at position `top`: the dot product of dy, which is a
// left operand, and y.
template <typename T, int kD>
__device__ __forceinline__ void RowDots(const uint32_t (&d)[kD / 16][4], const T* y, int64_t width,
                                        int top, int context, float (&dot)[2]) {
  const int row = (threadIdx.x & 31) >> 2, pair = threadIdx.x & 3;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    dot[half] = 0;
    const int t = top + row + half * 8;
    const T* y_row = y + int64_t{t} * width + pair * 2;
    if (t < context) {
#pragma unroll
      for (int step = 0; step < kD / 16; ++step) {
#pragma unroll
        for (int side = 0; side < 2; ++side) {
          const float2 a = HalfWord<T>::Unpack(d[step][2 * side + half]);
          const float2 b =
              HalfWord<T>::Unpack(*reinterpret_cast<const uint32_t*>(y_row + step * 16 + side * 8));
          dot[half] += a.x * b.x + a.y * b.y;
        }
      }
    }
    dot[half] = SumOfQuad(dot[half]);
  }
}

// Writes those for the gradients of k and v, and reads the rows' log sums.
__device__ __forceinline__ void KeepDots(const float (&dot)[2], const float* log_sums,
                                         float* row_dots, int top, int context,
                                         float (&log2_sum)[2]) {
  const int row = (threadIdx.x & 31) >> 2, pair = threadIdx.x & 3;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int t = top + row + half * 8;
    const int64_t at = int64_t{blockIdx.y} * context + t;
    log2_sum[half] = t < context ? log_sums[at] * kLog2e : 0.0f;
    if (t < context && pair == 0) row_dots[at] = dot[half];
  }
}

// ds = p (dp - dot), with p from the scores, in the place of dp. `column` is that of the first
// score, `top` the position of row 0 of the strip.
template <int kPart>
__device__ __forceinline__ void ScoreGradient(const float (&s)[kPart / 8][4],
                                              float (&dp)[kPart / 8][4], float scale,
                                              const float (&log2_sum)[2], const float (&dot)[2],
                                              int column, int top) {
  const int row = (threadIdx.x & 31) >> 2, pair = threadIdx.x & 3;
#pragma unroll
  for (int n = 0; n < kPart / 8; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int half = i >> 1;
      const bool seen = column + n * 8 + pair * 2 + (i & 1) <= top + row + half * 8;
      const float p = Exp2(s[n][i] * scale - log2_sum[half]);
      dp[n][i] = seen ? p * (dp[n][i] - dot[half]) : 0.0f;
    }
  }
}

template <typename T, int kD>
__global__ void __launch_bounds__(kThreads, QueryShape<kD>::kResident)
    QueryGradientKernel(const T* qkv, const T* dy, const T* y, const float* log_sums, T* dqkv,
                        float* row_dots, int context, int heads, float scale) {
  using Shape = QueryShape<kD>;
  constexpr int kPart = Shape::kPart;
  extern __shared__ __align__(128) uint8_t shared[];
  const uint32_t q_tile = static_cast<uint32_t>(__cvta_generic_to_shared(shared));
  const uint32_t dy_tile = q_tile + Shape::kRows * kD * 2;
  const uint32_t kv_tiles = dy_tile + Shape::kRows * kD * 2;
  const HeadRows<const T> rows(qkv, context, heads, kD);
  const int64_t stride = 3 * rows.width;
  const T* dy_rows = rows.Of(dy, context, kD);
  const T* y_rows = rows.Of(y, context, kD);
  const int first = static_cast<int>(gridDim.x - 1 - blockIdx.x) * Shape::kRows;
  const int warp = threadIdx.x >> 5;
  const int own = warp * 16 * Shape::kStrips;  // first row of this warp in the tile
  const int tiles = (min(context, first + Shape::kRows) + kTile - 1) / kTile;

  const auto load = [&](int tile) {
    const uint32_t to = kv_tiles + (tile & 1) * 2 * Shape::kTileBytes;
    Tile<kD>::template Load<kTile, kThreads>(to, rows.k, stride, tile * kTile, context);
    Tile<kD>::template Load<kTile, kThreads>(to + Shape::kTileBytes, rows.v, stride, tile * kTile,
                                             context);
  };
  Tile<kD>::template Load<Shape::kRows, kThreads>(q_tile, rows.q, stride, first, context);
  Tile<kD>::template Load<Shape::kRows, kThreads>(dy_tile, dy_rows, rows.width, first, context);
  load(0);
  CommitCopies();

  uint32_t q[Shape::kStrips][kD / 16][4], d[Shape::kStrips][kD / 16][4];
  float dq[Shape::kStrips][kD / 8][4] = {};
  float log2_sum[Shape::kStrips][2], dot[Shape::kStrips][2];
  for (int tile = 0; tile < tiles; ++tile) {
    if (tile + 1 < tiles) load(tile + 1);
    CommitCopies();
    WaitCopies<1>();
    __syncthreads();
    if (tile == 0) {
#pragma unroll
      for (int strip = 0; strip < Shape::kStrips; ++strip) {
        const int at = own + strip * 16;
#pragma unroll
        for (int step = 0; step < kD / 16; ++step) {
          Tile<kD>::Left(q_tile, at, step, q[strip][step]);
          Tile<kD>::Left(dy_tile, at, step, d[strip][step]);
        }
        RowDots<T, kD>(d[strip], y_rows, rows.width, first + at, context, dot[strip]);
        KeepDots(dot[strip], log_sums, row_dots, first + at, context, log2_sum[strip]);
      }
    }
    const uint32_t k_tile = kv_tiles + (tile & 1) * 2 * Shape::kTileBytes;
#pragma unroll
    for (int part = 0; part < kTile; part += kPart) {
      const int column = tile * kTile + part;
      if (column >= first + own + 16 * Shape::kStrips) continue;  // nothing of it is seen
      float s[Shape::kStrips][kPart / 8][4] = {}, ds[Shape::kStrips][kPart / 8][4] = {};
      ProductTransposed<T, kD, kPart>(q, k_tile, part, s);
      ProductTransposed<T, kD, kPart>(d, k_tile + Shape::kTileBytes, part, ds);
#pragma unroll
      for (int strip = 0; strip < Shape::kStrips; ++strip) {
        ScoreGradient<kPart>(s[strip], ds[strip], scale * kLog2e, log2_sum[strip], dot[strip],
                             column, first + own + strip * 16);
      }
      Product<T, kD, kPart>(ds, k_tile, part, dq);
    }
    __syncthreads();
  }

#pragma unroll
  for (int strip = 0; strip < Shape::kStrips; ++strip) {
    const int at = own + strip * 16;
    StoreAccumulators<T, kD>(q_tile, at, dq[strip], scale, scale);
    __syncwarp();
    WriteRows<T, kD>(q_tile, at, dqkv + (rows.q - qkv), stride, first + at, context);
  }
}

// The gradients of k and v. Scores are transposed: a warp owns 16 positions of k and v and walks
// over the rows of q that see them.
template <int kD>
struct KeyShape {
  static constexpr int kRows = kWarps * 16;
  static constexpr int kTileBytes = kTile * kD * 2;
  static constexpr int kFloats = 2 * kTile;  // log_sums and row_dots of a tile
  static constexpr int kBytes = 2 * kRows * kD * 2 + 4 * kTileBytes + 2 * kFloats * 4;
  static constexpr int kResident = kD > 64 ? 1 : 3;
  static constexpr int kPart = 16;
};

template <typename T, int kD>
__global__ void __launch_bounds__(kThreads, KeyShape<kD>::kResident)
    KeyGradientKernel(const T* qkv, const T* dy, const float* log_sums, const float* row_dots,
                      T* dqkv, int context, int heads, float scale) {
  using Shape = KeyShape<kD>;
  constexpr int kPart = Shape::kPart;
  extern __shared__ __align__(128) uint8_t shared[];
  const uint32_t k_tile = static_cast<uint32_t>(__cvta_generic_to_shared(shared));
  const uint32_t v_tile = k_tile + Shape::kRows * kD * 2;
  const uint32_t q_tiles = v_tile + Shape::kRows * kD * 2;  // q, dy, then those of the next
  const uint32_t float_tiles = q_tiles + 4 * Shape::kTileBytes;
  const float* floats = reinterpret_cast<const float*>(shared + (float_tiles - k_tile));
  const HeadRows<const T> rows(qkv, context, heads, kD);
  const int64_t stride = 3 * rows.width;
  const T* dy_rows = rows.Of(dy, context, kD);
  const float* head_log_sums = log_sums + int64_t{blockIdx.y} * context;
  const float* head_dots = row_dots + int64_t{blockIdx.y} * context;
  // The positions that most rows see start first.
  const int first = static_cast<int>(blockIdx.x) * Shape::kRows;
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  const int row = lane >> 2, pair = lane & 3;
  const int own = warp * 16, top = first + own;
  const int first_tile = first / kTile, tiles = (context + kTile - 1) / kTile;

  const auto load = [&](int tile) {
    const uint32_t to = q_tiles + (tile & 1) * 2 * Shape::kTileBytes;
    Tile<kD>::template Load<kTile, kThreads>(to, rows.q, stride, tile * kTile, context);
    Tile<kD>::template Load<kTile, kThreads>(to + Shape::kTileBytes, dy_rows, rows.width,
                                             tile * kTile, context);
    static_assert(Shape::kFloats == kThreads);
    const int t = tile * kTile + static_cast<int>(threadIdx.x) % kTile;
    const float* from = threadIdx.x < kTile ? head_log_sums : head_dots;
    CopyAsync4(float_tiles + (tile & 1) * Shape::kFloats * 4 + threadIdx.x * 4,
               from + (t < context ? t : 0), t < context);
  };
  Tile<kD>::template Load<Shape::kRows, kThreads>(k_tile, rows.k, stride, first, context);
  Tile<kD>::template Load<Shape::kRows, kThreads>(v_tile, rows.v, stride, first, context);
  load(first_tile);
  CommitCopies();

  uint32_t k[1][kD / 16][4], v[1][kD / 16][4];
  float dk[1][kD / 8][4] = {}, dv[1][kD / 8][4] = {};
  for (int tile = first_tile; tile < tiles; ++tile) {
    if (tile + 1 < tiles) load(tile + 1);
    CommitCopies();
    WaitCopies<1>();
    __syncthreads();
    if (tile == first_tile) {
#pragma unroll
      for (int step = 0; step < kD / 16; ++step) {
        Tile<kD>::Left(k_tile, own, step, k[0][step]);
        Tile<kD>::Left(v_tile, own, step, v[0][step]);
      }
    }
    const uint32_t q_tile = q_tiles + (tile & 1) * 2 * Shape::kTileBytes;
    const uint32_t dy_tile = q_tile + Shape::kTileBytes;
    const float* sums = floats + (tile & 1) * Shape::kFloats;
#pragma unroll
    for (int part = 0; part < kTile; part += kPart) {
      const int column = tile * kTile + part;  // position of a row of q
      if (column + kPart - 1 < top) continue;  // none of these rows sees this warp's positions
      float s[1][kPart / 8][4] = {}, ds[1][kPart / 8][4] = {};
      ProductTransposed<T, kD, kPart>(k, q_tile, part, s);
      ProductTransposed<T, kD, kPart>(v, dy_tile, part, ds);
#pragma unroll
      for (int n = 0; n < kPart / 8; ++n) {
        const int at = part + n * 8 + pair * 2;
        const float2 log_sum = *reinterpret_cast<const float2*>(sums + at);
        const float2 dot = *reinterpret_cast<const float2*>(sums + kTile + at);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const bool seen = top + row + (i >> 1) * 8 <= tile * kTile + at + (i & 1);
          const float l = i & 1 ? log_sum.y : log_sum.x;
          const float p = seen ? Exp2(kLog2e * (s[0][n][i] * scale - l)) : 0.0f;
          s[0][n][i] = p;
          ds[0][n][i] = seen ? p * (ds[0][n][i] - (i & 1 ? dot.y : dot.x)) : 0.0f;
        }
      }
      Product<T, kD, kPart>(s, dy_tile, part, dv);
      Product<T, kD, kPart>(ds, q_tile, part, dk);
    }
    __syncthreads();
  }

  StoreAccumulators<T, kD>(k_tile, own, dk[0], scale, scale);
  StoreAccumulators<T, kD>(v_tile, own, dv[0], 1.0f, 1.0f);
  __syncwarp();
  WriteRows<T, kD>(k_tile, own, dqkv + (rows.k - qkv), stride, top, context);
  WriteRows<T, kD>(v_tile, own, dqkv + (rows.v - qkv), stride, top, context);
}

}  // namespace trainctl::cuda::attention

#endif  // TRAINCTL_KERNELS_CUDA_ATTENTION_TENSOR_CORE_CUH_
