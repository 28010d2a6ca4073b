#include "kernels/cuda/layer_norm.h"

#include <algorithm>
#include <initializer_list>

#include "kernels/cuda/column_sums.cuh"
#include "kernels/cuda/packed.cuh"

namespace trainctl::cuda {
namespace {

constexpr float kEpsilon = 1e-5f;  // added to the variance
// Rows of up to 256 vectors are worked on several at a time, wider ones singly: as many as
// registers hold.
constexpr int kNarrow = 256;
constexpr int kWide = 1024;
template <int kMaxThreads, int N>
constexpr int kRowsAtOnce = kMaxThreads == kWide ? 1
                            : N == 8             ? 2
                                                 : 4;
// Groups of rows that the backward pass sums apart: four blocks for each of the 132 processors of
// an H100 or H200. Part of the order of the sum, so it does not follow the GPU.
constexpr int64_t kGroups = 528;

int64_t RowsOfGroup(int64_t rows) {
  const int64_t fewest = std::max<int64_t>(CeilDivide(rows, kGroups), 1);
  return CeilDivide(fewest, 4) * 4;
}

// A block holds a few rows, each thread N columns of each.
template <typename T, int N, int kMaxThreads>
__global__ void __launch_bounds__(kMaxThreads)
    ForwardKernel(const T* x, const T* residual, const T* weight, const T* bias, T* sum, T* y,
                  float* mean, float* inverse_deviation, int64_t rows, int width) {
  constexpr int kRows = kRowsAtOnce<kMaxThreads, N>;
  __shared__ float shared[2][kRows * kMaxThreads / kWarp];
  const int column = threadIdx.x * N;
  const int64_t first = static_cast<int64_t>(blockIdx.x) * kRows;
  const bool inside = column < width;
  const float share = 1.0f / static_cast<float>(width);
  float v[kRows][N] = {};
  float w[N] = {}, b[N] = {};
  if (inside) {
    Packed<T, N> in[kRows], add[kRows];
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      if (first + r < rows) {
        in[r].Read(x + (first + r) * width + column);
        if (residual != nullptr) add[r].Read(residual + (first + r) * width + column);
      }
    }
    Load<N>(weight + column, w);
    Load<N>(bias + column, b);
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      if (residual != nullptr && first + r < rows) {
#pragma unroll
        for (int k = 0; k < N; ++k) in[r].element[k] = FromFloat<T>(in[r][k] + add[r][k]);
        in[r].Write(sum + (first + r) * width + column);
      }
#pragma unroll
      for (int k = 0; k < N; ++k) v[r][k] = in[r][k];
    }
  }
  float m[kRows], inverse[kRows];
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    m[r] = 0;
#pragma unroll
    for (int k = 0; k < N; ++k) m[r] += v[r][k];
  }
  BlockSum(m, shared[0]);
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    m[r] *= share;
    inverse[r] = 0;
#pragma unroll
    for (int k = 0; k < N; ++k) {
      const float d = v[r][k] - m[r];
      inverse[r] += inside ? d * d : 0.0f;
    }
  }
  BlockSum(inverse, shared[1]);
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    if (first + r >= rows) return;
    const float factor = 1.0f / sqrtf(inverse[r] * share + kEpsilon);
    if (inside) {
#pragma unroll
      for (int k = 0; k < N; ++k) v[r][k] = (v[r][k] - m[r]) * factor * w[k] + b[k];
      Store<N>(y + (first + r) * width + column, v[r]);
    }
    if (threadIdx.x == 0) {
      mean[first + r] = m[r];
      inverse_deviation[first + r] = factor;
    }
  }
}

// A thread's part of a few rows, read while the rows before are worked on.
template <typename T, int N, int kRows, bool kFirst>
struct Slice {
  Packed<T, N> dy[kRows], x[kRows], below[kFirst ? 1 : kRows];
  float mean[kRows], inverse[kRows];

  // Rows from `end` on, and columns outside, are zeros.
  __device__ void Read(const T* all_dy, const T* all_x, const T* dx, const float* means,
                       const float* inverses, int64_t first, int64_t end, int width, int column,
                       bool inside) {
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      dy[r] = x[r] = Packed<T, N>();
      mean[r] = inverse[r] = 0;
      if (first + r >= end) continue;
      mean[r] = means[first + r];
      inverse[r] = inverses[first + r];
      if (!inside) continue;
      const int64_t at = (first + r) * width + column;
      dy[r].Read(all_dy + at);
      x[r].Read(all_x + at);
      if constexpr (!kFirst) below[r].Read(dx + at);
    }
  }
  __device__ float Normalised(int r, int k) const { return (x[r][k] - mean[r]) * inverse[r]; }
  __device__ float Below(int r, int k) const {
    if constexpr (kFirst) return 0.0f;
    return below[r][k];
  }
};

// With g = dy * weight and z the normalised x: dx += (g - mean(g) - z mean(g z)) / deviation. A
// block goes through a group of rows and keeps its sums for dweight and dbias in registers.
template <typename T, int N, int kMaxThreads, bool kFirst>
__global__ void __launch_bounds__(kMaxThreads)
    BackwardKernel(const T* dy, const T* x, const float* mean, const float* inverse_deviation,
                   const T* weight, T* dx, float* partials, int64_t rows, int width,
                   int64_t rows_of_group) {
  constexpr int kRows = kRowsAtOnce<kMaxThreads, N>;
  __shared__ float shared[2][2 * kRows * kMaxThreads / kWarp];
  const int column = threadIdx.x * N;
  const bool inside = column < width;
  const int64_t begin = blockIdx.x * rows_of_group;
  const int64_t end = min(begin + rows_of_group, rows);
  const float share = 1.0f / static_cast<float>(width);
  float w[N] = {}, dw[N] = {}, db[N] = {};
  if (inside) Load<N>(weight + column, w);
  Slice<T, N, kRows, kFirst> next;
  next.Read(dy, x, dx, mean, inverse_deviation, begin, end, width, column, inside);
  int place = 0;  // in turns, so that a slow warp still reads the last sums
  for (int64_t first = begin; first < end; first += kRows, place ^= 1) {
    const Slice<T, N, kRows, kFirst> now = next;
    next.Read(dy, x, dx, mean, inverse_deviation, first + kRows, end, width, column, inside);
    float sums[2 * kRows];
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      float g_sum = 0, gz_sum = 0;
#pragma unroll
      for (int k = 0; k < N; ++k) {
        const float d = now.dy[r][k], z = now.Normalised(r, k), g = d * w[k];
        g_sum += g;
        gz_sum += g * z;
        db[k] += d;
        dw[k] += d * z;
      }
      sums[2 * r] = g_sum;
      sums[2 * r + 1] = gz_sum;
    }
    BlockSum(sums, shared[place]);
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      if (first + r >= end || !inside) break;
      const float mean_g = sums[2 * r] * share, mean_gz = sums[2 * r + 1] * share;
      Packed<T, N> out;
#pragma unroll
      for (int k = 0; k < N; ++k) {
        const float g = now.dy[r][k] * w[k];
        const float through = (g - mean_g - now.Normalised(r, k) * mean_gz) * now.inverse[r];
        out.element[k] = FromFloat<T>(now.Below(r, k) + through);
      }
      out.Write(dx + (first + r) * width + column);
    }
  }
  if (!inside) return;
  float* mine = partials + static_cast<int64_t>(blockIdx.x) * width + column;
  Store<N>(mine, dw);
  Store<N>(mine + static_cast<int64_t>(gridDim.x) * width, db);
}

template <int kN, int kThreads>
struct RowBlock {
  static constexpr int N = kN, kMaxThreads = kThreads;
};

template <int N, typename Body>
bool LaunchRowBlock(int64_t width, Body&& body) {
  const int threads = static_cast<int>(CeilDivide(CeilDivide(width, N), kWarp) * kWarp);
  if (threads > kWide) return false;
  if (threads <= kNarrow) {
    body(RowBlock<N, kNarrow>(), threads);
  } else {
    body(RowBlock<N, kWide>(), threads);
  }
  return true;
}

// Calls body(RowBlock, threads) if one block can hold a row.
template <typename T, typename Body>
absl::Status WithRowBlock(const char* name, int64_t width, std::initializer_list<const void*> data,
                          Body&& body) {
  bool aligned = width % kVector<T> == 0;
  for (const void* p : data) aligned = aligned && Aligned(p, 16);
  if (aligned ? LaunchRowBlock<kVector<T>>(width, body) : LaunchRowBlock<1>(width, body)) {
    return LaunchStatus(name);
  }
  return absl::InvalidArgumentError(absl::StrCat(
      name, ": rows of ", width, " elements of ", sizeof(T),
      " bytes; give at most 1024 elements, or at most 16 KiB in multiples of 16 bytes on 16-byte "
      "boundaries"));
}

}  // namespace

absl::Status ResidualNormForward(Dtype type, const void* x, const void* residual,
                                 const void* weight, const void* bias, void* sum, void* y,
                                 float* mean, float* inverse_deviation, int64_t rows, int64_t width,
                                 cudaStream_t stream) {
  if (rows == 0 || width == 0) return absl::OkStatus();
  return WithType(type, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    return WithRowBlock<T>(
        "ResidualNormForward", width, {x, residual, weight, bias, sum, y},
        [&](auto block, int threads) {
          constexpr int kThreads = block.kMaxThreads;
          ForwardKernel<T, block.N, kThreads>
              <<<static_cast<unsigned>(CeilDivide(rows, kRowsAtOnce<kThreads, block.N>)), threads,
                 0, stream>>>(static_cast<const T*>(x), static_cast<const T*>(residual),
                              static_cast<const T*>(weight), static_cast<const T*>(bias),
                              static_cast<T*>(sum), static_cast<T*>(y), mean, inverse_deviation,
                              rows, static_cast<int>(width));
        });
  });
}

int64_t ResidualNormWorkspace(int64_t rows, int64_t width) {
  return 2 * CeilDivide(rows, RowsOfGroup(rows)) * width * static_cast<int64_t>(sizeof(float));
}

absl::Status ResidualNormBackward(Dtype type, const void* dy, const void* x, const float* mean,
                                  const float* inverse_deviation, const void* weight, bool first,
                                  void* dx, Dtype gradient_type, void* dweight, void* dbias,
                                  void* workspace, int64_t rows, int64_t width,
                                  cudaStream_t stream) {
  if (rows == 0 || width == 0) return absl::OkStatus();
  const int64_t rows_of_group = RowsOfGroup(rows);
  const int groups = static_cast<int>(CeilDivide(rows, rows_of_group));
  float* partials = static_cast<float*>(workspace);
  const absl::Status status = WithType(type, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    return WithRowBlock<T>(
        "ResidualNormBackward", width, {dy, x, weight, dx, workspace},
        [&](auto block, int threads) {
          const auto kernel = first ? BackwardKernel<T, block.N, block.kMaxThreads, true>
                                    : BackwardKernel<T, block.N, block.kMaxThreads, false>;
          kernel<<<groups, threads, 0, stream>>>(
              static_cast<const T*>(dy), static_cast<const T*>(x), mean, inverse_deviation,
              static_cast<const T*>(weight), static_cast<T*>(dx), partials, rows,
              static_cast<int>(width), rows_of_group);
        });
  });
  if (!status.ok()) return status;
  return FinishColumnSums(partials, groups, width, gradient_type, dweight, dbias, stream);
}

}  // namespace trainctl::cuda
