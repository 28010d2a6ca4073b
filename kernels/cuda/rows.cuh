// Passes over a matrix that treat every element alike but for its column: activations with a bias,
// and their backward passes with the gradient of the bias.
#ifndef TRAINCTL_KERNELS_CUDA_ROWS_CUH_
#define TRAINCTL_KERNELS_CUDA_ROWS_CUH_

#include <algorithm>
#include <initializer_list>
#include <type_traits>

#include "kernels/cuda/column_sums.cuh"
#include "kernels/cuda/packed.cuh"

namespace trainctl::cuda {

// A block is 32 threads wide, each with kVector columns, and 8 high.
constexpr int kRowThreads = 8;
constexpr int kRowUnroll = 4;
// Rows that the backward pass has in flight: as many as registers hold.
template <int N>
constexpr int kBackwardUnroll = N == 8 ? 2 : 4;

// Groups of rows whose partial sums the bias gradient has; part of the order of the sum.
inline int64_t RowsOfGroup(int64_t rows) {
  constexpr int64_t kGroups = 128;
  return std::max<int64_t>(kRowThreads * kRowUnroll, CeilDivide(rows, kGroups));
}

// Calls operation(v, at) for every vector v of x + bias, which begins `at` elements into the
// matrix.
template <typename T, int N, typename Operation>
__global__ void __launch_bounds__(kWarp* kRowThreads)
    ForwardRows(const T* x, const T* bias, int64_t rows, int64_t width, Operation operation) {
  const int64_t column = (static_cast<int64_t>(blockIdx.x) * kWarp + threadIdx.x) * N;
  if (column >= width) return;
  float b[N] = {};
  if (bias != nullptr) Load<N>(bias + column, b);
  const int64_t first = static_cast<int64_t>(blockIdx.y) * kRowThreads * kRowUnroll + threadIdx.y;
  float v[kRowUnroll][N];
#pragma unroll
  for (int u = 0; u < kRowUnroll; ++u) {
    const int64_t r = first + u * kRowThreads;
    if (r < rows) Load<N>(x + r * width + column, v[u]);
  }
#pragma unroll
  for (int u = 0; u < kRowUnroll; ++u) {
    const int64_t r = first + u * kRowThreads;
    if (r >= rows) return;
#pragma unroll
    for (int k = 0; k < N; ++k) v[u][k] += b[k];
    operation(v[u], r * width + column);
  }
}

// Where Operation::kWrites, dy becomes operation(dy, other). partials[group, width] = sums of dy
// over the rows of a group.
template <typename T, int N, typename Operation>
__global__ void __launch_bounds__(kWarp* kRowThreads)
    BackwardRows(const T* other, T* dy, float* partials, int64_t rows, int64_t width,
                 int64_t rows_of_group, Operation operation) {
  __shared__ float sums[kRowThreads][kWarp * N];
  const int64_t column = (static_cast<int64_t>(blockIdx.x) * kWarp + threadIdx.x) * N;
  const int64_t begin = blockIdx.y * rows_of_group;
  const int64_t end = min(begin + rows_of_group, rows);
  float sum[N] = {};
  if (column < width) {
    constexpr int kUnroll = kBackwardUnroll<N>;
    for (int64_t r = begin + threadIdx.y; r < end; r += kRowThreads * kUnroll) {
      Packed<T, N> d[kUnroll], o[kUnroll];
#pragma unroll
      for (int u = 0; u < kUnroll; ++u) {
        const int64_t row = r + u * kRowThreads;
        if (row < end) {
          d[u].Read(dy + row * width + column);
          if constexpr (Operation::kWrites) o[u].Read(other + row * width + column);
        }
      }
#pragma unroll
      for (int u = 0; u < kUnroll; ++u) {
        const int64_t row = r + u * kRowThreads;
        if (row >= end) break;
        if constexpr (Operation::kWrites) {
#pragma unroll
          for (int k = 0; k < N; ++k) d[u].element[k] = FromFloat<T>(operation(d[u][k], o[u][k]));
          d[u].Write(dy + row * width + column);
        }
#pragma unroll
        for (int k = 0; k < N; ++k) sum[k] += d[u][k];
      }
    }
  }
#pragma unroll
  for (int k = 0; k < N; ++k) sums[threadIdx.y][k * kWarp + threadIdx.x] = sum[k];
  __syncthreads();
  if (threadIdx.y != 0 || column >= width) return;
#pragma unroll
  for (int k = 0; k < N; ++k) {
    for (int y = 1; y < kRowThreads; ++y) sum[k] += sums[y][k * kWarp + threadIdx.x];
  }
  Store<N>(partials + blockIdx.y * width + column, sum);
}

// Calls body(integral_constant<N>) with the elements of a vector that fits width and pointers.
template <typename T, typename Body>
void WithVector(int64_t width, std::initializer_list<const void*> pointers, Body&& body) {
  bool aligned = width % kVector<T> == 0;
  for (const void* p : pointers) aligned = aligned && Aligned(p, 16);
  if (aligned) {
    body(std::integral_constant<int, kVector<T>>());
  } else {
    body(std::integral_constant<int, 1>());
  }
}

// make(N) gives the operation on vectors of N elements; y is where it writes.
template <typename T, typename Make>
absl::Status LaunchForwardRows(const char* name, const T* x, const T* bias, const T* y,
                               int64_t rows, int64_t width, cudaStream_t stream, Make&& make) {
  if (rows == 0 || width == 0) return absl::OkStatus();
  WithVector<T>(width, {x, bias, y}, [&](auto n) {
    const dim3 grid(static_cast<unsigned>(CeilDivide(width, n.value * kWarp)),
                    static_cast<unsigned>(CeilDivide(rows, kRowThreads * kRowUnroll)));
    ForwardRows<T, n.value>
        <<<grid, dim3(kWarp, kRowThreads), 0, stream>>>(x, bias, rows, width, make(n));
  });
  return LaunchStatus(name);
}

template <typename T, typename Operation>
absl::Status LaunchBackwardRows(const char* name, const T* other, T* dy, Dtype gradient_type,
                                void* db, void* workspace, int64_t rows, int64_t width,
                                Operation operation, cudaStream_t stream) {
  if (rows == 0 || width == 0) return absl::OkStatus();
  const int64_t rows_of_group = RowsOfGroup(rows);
  const int64_t groups = CeilDivide(rows, rows_of_group);
  float* partials = static_cast<float*>(workspace);
  WithVector<T>(width, {other, dy, workspace}, [&](auto n) {
    const dim3 grid(static_cast<unsigned>(CeilDivide(width, n.value * kWarp)),
                    static_cast<unsigned>(groups));
    BackwardRows<T, n.value><<<grid, dim3(kWarp, kRowThreads), 0, stream>>>(
        other, dy, partials, rows, width, rows_of_group, operation);
  });
  if (absl::Status status = LaunchStatus(name); !status.ok()) return status;
  return FinishColumnSums(partials, static_cast<int>(groups), width, gradient_type, db, nullptr,
                          stream);
}

}  // namespace trainctl::cuda

#endif  // TRAINCTL_KERNELS_CUDA_ROWS_CUH_
