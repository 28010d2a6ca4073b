// Attention in float32 arithmetic, for any type and head size up to kMaxHeadSize. A block takes 32
// rows of one head, eight lanes of a warp share a row.
#ifndef TRAINCTL_KERNELS_CUDA_ATTENTION_PLAIN_CUH_
#define TRAINCTL_KERNELS_CUDA_ATTENTION_PLAIN_CUH_

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

namespace trainctl::cuda::attention::plain {

constexpr int kRows = 32;
constexpr int kLanes = 8;  // of one row
constexpr int kThreads = kRows * kLanes;
constexpr int kScores = kRows / kLanes;  // columns of a tile that a lane computes
constexpr int kOutputs = 128 / kLanes;   // elements of a row that a lane sums, at most
constexpr int kScoreStride = kRows + 1;  // keeps a column out of one bank

__device__ __forceinline__ float ToFloat(float x) { return x; }
__device__ __forceinline__ float ToFloat(__nv_bfloat16 x) { return __bfloat162float(x); }
__device__ __forceinline__ float ToFloat(__half x) { return __half2float(x); }
template <typename T>
__device__ __forceinline__ T FromFloat(float x) {
  if constexpr (sizeof(T) == 4) {
    return x;
  } else if constexpr (__is_same(T, __half)) {
    return __float2half_rn(x);
  } else {
    return __float2bfloat16_rn(x);
  }
}

__device__ __forceinline__ float MaxOfRow(float x) {
  for (int i = 1; i < kLanes; i *= 2) x = fmaxf(x, __shfl_xor_sync(0xffffffff, x, i));
  return x;
}
__device__ __forceinline__ float SumOfRow(float x) {
  for (int i = 1; i < kLanes; i *= 2) x += __shfl_xor_sync(0xffffffff, x, i);
  return x;
}

struct Head {
  int context, heads, size;
  float scale;
  __device__ int64_t width() const { return int64_t{heads} * size; }
  // Of position 0 in qkv (q; k and v follow at width and 2 width), and in y.
  __device__ int64_t InQkv() const {
    return int64_t{blockIdx.y / heads} * context * 3 * width() + blockIdx.y % heads * size;
  }
  __device__ int64_t InY() const {
    return int64_t{blockIdx.y / heads} * context * width() + blockIdx.y % heads * size;
  }
  __device__ int64_t InRows() const { return int64_t{blockIdx.y} * context; }
  __device__ int stride() const { return size + 1; }
};

// Rows [first, first + kRows) of one head; those past the end are zero.
template <typename T>
__device__ void Load(const Head& head, const T* from, int64_t stride, int first, float* to) {
  for (int i = threadIdx.x; i < kRows * head.size; i += kThreads) {
    const int row = i / head.size, column = i % head.size;
    to[row * head.stride() + column] =
        first + row < head.context ? ToFloat(from[(first + row) * stride + column]) : 0.0f;
  }
}

__device__ __forceinline__ float Dot(const float* a, const float* b, int n) {
  float sum = 0;
  for (int i = 0; i < n; ++i) sum += a[i] * b[i];
  return sum;
}

// out[i] += sum over the tile's columns of p[column] * tile[column][lane + kLanes i].
__device__ __forceinline__ void Accumulate(const Head& head, const float* p, const float* tile,
                                           int lane, float (&out)[kOutputs]) {
  for (int c = 0; c < kRows; ++c) {
    const float weight = p[c];
#pragma unroll
    for (int i = 0; i < kOutputs; ++i) {
      const int d = lane + i * kLanes;
      if (d < head.size) out[i] += weight * tile[c * head.stride() + d];
    }
  }
}

template <typename T>
__device__ __forceinline__ void Write(const Head& head, const float (&out)[kOutputs], float factor,
                                      int lane, T* row) {
#pragma unroll
  for (int i = 0; i < kOutputs; ++i) {
    const int d = lane + i * kLanes;
    if (d < head.size) row[d] = FromFloat<T>(out[i] * factor);
  }
}

template <typename T>
__global__ void __launch_bounds__(kThreads)
    ForwardKernel(Head head, const T* qkv, T* y, float* log_sums) {
  extern __shared__ float shared[];
  const int tile_floats = kRows * head.stride();
  float *q = shared, *k = q + tile_floats, *v = k + tile_floats, *p = v + tile_floats;
  const int r = threadIdx.x / kLanes, lane = threadIdx.x % kLanes;
  const int first = static_cast<int>(gridDim.x - 1 - blockIdx.x) * kRows, t = first + r;
  const T* rows = qkv + head.InQkv();
  const int64_t width = head.width();
  Load(head, rows, 3 * width, first, q);
  float out[kOutputs] = {};
  float largest = -INFINITY, sum = 0;
  for (int column = 0; column <= first; column += kRows) {
    __syncthreads();
    Load(head, rows + width, 3 * width, column, k);
    Load(head, rows + 2 * width, 3 * width, column, v);
    __syncthreads();
    float s[kScores], m = largest;
#pragma unroll
    for (int j = 0; j < kScores; ++j) {
      const int c = lane + j * kLanes;
      s[j] = column + c <= t
                 ? head.scale * Dot(q + r * head.stride(), k + c * head.stride(), head.size)
                 : -INFINITY;
      m = fmaxf(m, s[j]);
    }
    m = MaxOfRow(m);
    const float shrink = expf(largest - m);
    largest = m;
    sum *= shrink;
#pragma unroll
    for (int i = 0; i < kOutputs; ++i) out[i] *= shrink;
#pragma unroll
    for (int j = 0; j < kScores; ++j) {
      const float e = expf(s[j] - m);
      sum += e;
      p[r * kScoreStride + lane + j * kLanes] = e;
    }
    __syncwarp();
    Accumulate(head, p + r * kScoreStride, v, lane, out);
  }
  sum = SumOfRow(sum);
  if (t >= head.context) return;
  Write(head, out, 1 / sum, lane, y + head.InY() + t * width);
  if (lane == 0) log_sums[head.InRows() + t] = largest + logf(sum);
}

template <typename T>
__global__ void __launch_bounds__(kThreads)
    QueryGradientKernel(Head head, const T* qkv, const T* dy, const T* y, const float* log_sums,
                        T* dqkv, float* row_dots) {
  extern __shared__ float shared[];
  const int tile_floats = kRows * head.stride();
  float *q = shared, *d = q + tile_floats, *k = d + tile_floats, *v = k + tile_floats;
  float* p = v + tile_floats;
  const int r = threadIdx.x / kLanes, lane = threadIdx.x % kLanes;
  const int first = static_cast<int>(gridDim.x - 1 - blockIdx.x) * kRows, t = first + r;
  const T* rows = qkv + head.InQkv();
  const int64_t width = head.width();
  Load(head, rows, 3 * width, first, q);
  Load(head, dy + head.InY(), width, first, d);
  __syncthreads();
  float dot = 0;
  if (t < head.context) {
    for (int i = lane; i < head.size; i += kLanes) {
      dot += d[r * head.stride() + i] * ToFloat(y[head.InY() + t * width + i]);
    }
  }
  dot = SumOfRow(dot);
  const float log_sum = t < head.context ? log_sums[head.InRows() + t] : 0.0f;
  if (lane == 0 && t < head.context) row_dots[head.InRows() + t] = dot;
  float out[kOutputs] = {};
  for (int column = 0; column <= first; column += kRows) {
    __syncthreads();
    Load(head, rows + width, 3 * width, column, k);
    Load(head, rows + 2 * width, 3 * width, column, v);
    __syncthreads();
#pragma unroll
    for (int j = 0; j < kScores; ++j) {
      const int c = lane + j * kLanes;
      float ds = 0;
      if (column + c <= t) {
        const float s = Dot(q + r * head.stride(), k + c * head.stride(), head.size);
        const float dp = Dot(d + r * head.stride(), v + c * head.stride(), head.size);
        ds = expf(head.scale * s - log_sum) * (dp - dot);
      }
      p[r * kScoreStride + c] = ds;
    }
    __syncwarp();
    Accumulate(head, p + r * kScoreStride, k, lane, out);
  }
  if (t < head.context) Write(head, out, head.scale, lane, dqkv + head.InQkv() + t * 3 * width);
}

template <typename T>
__global__ void __launch_bounds__(kThreads)
    KeyGradientKernel(Head head, const T* qkv, const T* dy, const float* log_sums,
                      const float* row_dots, T* dqkv) {
  extern __shared__ float shared[];
  const int tile_floats = kRows * head.stride();
  float *k = shared, *v = k + tile_floats, *q = v + tile_floats, *d = q + tile_floats;
  float *p = d + tile_floats, *g = p + kRows * kScoreStride;
  const int r = threadIdx.x / kLanes, lane = threadIdx.x % kLanes;
  const int first = static_cast<int>(blockIdx.x) * kRows, u = first + r;
  const T* rows = qkv + head.InQkv();
  const int64_t width = head.width();
  Load(head, rows + width, 3 * width, first, k);
  Load(head, rows + 2 * width, 3 * width, first, v);
  float dk[kOutputs] = {}, dv[kOutputs] = {};
  for (int column = first; column < head.context; column += kRows) {
    __syncthreads();
    Load(head, rows, 3 * width, column, q);
    Load(head, dy + head.InY(), width, column, d);
    __syncthreads();
#pragma unroll
    for (int j = 0; j < kScores; ++j) {
      const int c = lane + j * kLanes, t = column + c;
      float weight = 0, ds = 0;
      if (u <= t && t < head.context) {
        const float s = Dot(k + r * head.stride(), q + c * head.stride(), head.size);
        const float dp = Dot(v + r * head.stride(), d + c * head.stride(), head.size);
        weight = expf(head.scale * s - log_sums[head.InRows() + t]);
        ds = weight * (dp - row_dots[head.InRows() + t]);
      }
      p[r * kScoreStride + c] = weight;
      g[r * kScoreStride + c] = ds;
    }
    __syncwarp();
    Accumulate(head, p + r * kScoreStride, d, lane, dv);
    Accumulate(head, g + r * kScoreStride, q, lane, dk);
  }
  if (u >= head.context) return;
  T* to = dqkv + head.InQkv() + u * 3 * width;
  Write(head, dk, head.scale, lane, to + width);
  Write(head, dv, 1.0f, lane, to + 2 * width);
}

// Bytes of shared memory with `tiles` tiles of rows and `scores` of scores.
inline size_t SharedBytes(int head_size, int tiles, int scores) {
  return sizeof(float) *
         static_cast<size_t>(kRows * (head_size + 1) * tiles + kRows * kScoreStride * scores);
}

}  // namespace trainctl::cuda::attention::plain

#endif  // TRAINCTL_KERNELS_CUDA_ATTENTION_PLAIN_CUH_
