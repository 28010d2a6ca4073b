#include "kernels/cuda/gradient_norm.h"

#include <cfloat>

#include "kernels/cuda/tensor_table.cuh"

namespace trainctl::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kPiece = 16384;  // elements of a block; part of the order of the sum
constexpr int kFinishThreads = 1024;

struct Partial {
  double sum;
  int32_t bad;  // kAllFinite, or the number of the tensor
};

// Squares of a few elements are summed in float32, which is exact enough for so few and cheap;
// where that is not finite, the elements are or a square is too large, and each is looked at.
template <int N>
__device__ double SquaresOf(const float (&x)[N], bool& bad) {
  float quick = 0;
#pragma unroll
  for (int k = 0; k < N; ++k) quick += x[k] * x[k];
  if (quick <= FLT_MAX) return quick;
  double sum = 0;
  for (int k = 0; k < N; ++k) {
    const double value = x[k];
    if (!(fabs(value) <= FLT_MAX)) bad = true;
    sum += value * value;
  }
  return sum;
}

template <typename T>
__device__ double SquaresOfPiece(const T* data, int count, bool& bad) {
  constexpr int kElements = kVector<T>;
  constexpr int kUnroll = 4;
  constexpr int kStride = kThreads * kElements * kUnroll;
  double sum = 0;
  int begin = 0;
  if (reinterpret_cast<uintptr_t>(data) % 16 == 0) {
    for (; begin + kStride <= count; begin += kStride) {
      float x[kUnroll][kElements];
#pragma unroll
      for (int u = 0; u < kUnroll; ++u) {
        Load<kElements>(data + begin + (u * kThreads + threadIdx.x) * kElements, x[u]);
      }
#pragma unroll
      for (int u = 0; u < kUnroll; ++u) sum += SquaresOf(x[u], bad);
    }
  }
  for (int i = begin + threadIdx.x; i < count; i += kThreads) {
    const float x[1] = {ToFloat(data[i])};
    sum += SquaresOf(x, bad);
  }
  return sum;
}

template <typename T>
__global__ void __launch_bounds__(kThreads)
    PartialSums(const __grid_constant__ TensorTable<GradientTensor> table, Partial* partials) {
  __shared__ double sums[kThreads / kWarp];
  const int t = table.Find(blockIdx.x);
  const int64_t begin = static_cast<int64_t>(blockIdx.x - table.blocks_before[t]) * kPiece;
  const int64_t left = table.item[t].n - begin;
  const T* data = static_cast<const T*>(table.item[t].data) + begin;
  bool bad = false;
  double sum[1] = {SquaresOfPiece(data, left < kPiece ? static_cast<int>(left) : kPiece, bad)};
  const bool any_bad = __syncthreads_or(bad);
  BlockSum(sum, sums);
  if (threadIdx.x == 0) {
    partials[table.first_block + blockIdx.x] = {sum[0],
                                                any_bad ? table.first_item + t : kAllFinite};
  }
}

__global__ void __launch_bounds__(kFinishThreads)
    FinishSum(const Partial* partials, int32_t count, double* total, int32_t* first_bad) {
  __shared__ double sums[kFinishThreads / kWarp];
  __shared__ int32_t lowest[kFinishThreads / kWarp];
  double sum[1] = {0};
  int32_t bad = kAllFinite;
  for (int i = threadIdx.x; i < count; i += kFinishThreads) {
    sum[0] += partials[i].sum;
    bad = min(bad, partials[i].bad);
  }
  bad = __reduce_min_sync(~0u, bad);
  if (threadIdx.x % kWarp == 0) lowest[threadIdx.x / kWarp] = bad;
  BlockSum(sum, sums);
  if (threadIdx.x == 0) {
    for (int w = 1; w < kFinishThreads / kWarp; ++w) bad = min(bad, lowest[w]);
    *total = sum[0];
    *first_bad = bad;
  }
}

__global__ void SetAllFinite(int32_t* first_bad) { *first_bad = kAllFinite; }

template <typename T>
__global__ void __launch_bounds__(kThreads)
    UnscaleKernel(const __grid_constant__ TensorTable<GradientTensor> table, float factor,
                  const float* loss_scale, int32_t* first_bad) {
  constexpr int kElements = kVector<T>;
  const int t = table.Find(blockIdx.x);
  const int64_t begin = static_cast<int64_t>(blockIdx.x - table.blocks_before[t]) * kPiece;
  const int64_t left = table.item[t].n - begin;
  const int count = left < kPiece ? static_cast<int>(left) : kPiece;
  T* data = static_cast<T*>(table.item[t].data) + begin;
  const float scale = loss_scale == nullptr
                          ? factor
                          : static_cast<float>(factor / static_cast<double>(*loss_scale));
  bool bad = false;
  int done = 0;
  if (reinterpret_cast<uintptr_t>(data) % 16 == 0) {
    done = count / kElements * kElements;
    for (int i = threadIdx.x * kElements; i < done; i += kThreads * kElements) {
      float x[kElements];
      Load<kElements>(data + i, x);
#pragma unroll
      for (int k = 0; k < kElements; ++k) {
        if (!(fabsf(x[k]) <= FLT_MAX)) bad = true;
        x[k] *= scale;
      }
      Store<kElements>(data + i, x);
    }
  }
  for (int i = done + threadIdx.x; i < count; i += kThreads) {
    const float x = ToFloat(data[i]);
    if (!(fabsf(x) <= FLT_MAX)) bad = true;
    data[i] = FromFloat<T>(x * scale);
  }
  if (__syncthreads_or(bad) && threadIdx.x == 0) atomicMin(first_bad, table.first_item + t);
}

int64_t Elements(const GradientTensor& tensor) { return tensor.n; }

int64_t Blocks(absl::Span<const GradientTensor> tensors) {
  int64_t blocks = 0;
  for (const GradientTensor& tensor : tensors) blocks += CeilDivide(tensor.n, kPiece);
  return blocks;
}

}  // namespace

int64_t SumOfSquaresWorkspace(absl::Span<const GradientTensor> tensors) {
  return Blocks(tensors) * static_cast<int64_t>(sizeof(Partial));
}

absl::Status SumOfSquares(absl::Span<const GradientTensor> tensors, Dtype type, void* workspace,
                          double* sum, int32_t* first_bad, cudaStream_t stream) {
  Partial* partials = static_cast<Partial*>(workspace);
  const absl::Status status = WithType(type, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    return ForTables(tensors, kPiece, Elements,
                     [&](const TensorTable<GradientTensor>& table, int blocks) {
                       PartialSums<T><<<blocks, kThreads, 0, stream>>>(table, partials);
                       return LaunchStatus("SumOfSquares");
                     });
  });
  if (!status.ok()) return status;
  FinishSum<<<1, kFinishThreads, 0, stream>>>(partials, static_cast<int32_t>(Blocks(tensors)), sum,
                                              first_bad);
  return LaunchStatus("SumOfSquares");
}

absl::Status Unscale(absl::Span<const GradientTensor> tensors, Dtype type, float factor,
                     const float* loss_scale, int32_t* first_bad, cudaStream_t stream) {
  SetAllFinite<<<1, 1, 0, stream>>>(first_bad);
  return WithType(type, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    return ForTables(
        tensors, kPiece, Elements, [&](const TensorTable<GradientTensor>& table, int blocks) {
          UnscaleKernel<T><<<blocks, kThreads, 0, stream>>>(table, factor, loss_scale, first_bad);
          return LaunchStatus("Unscale");
        });
  });
}

}  // namespace trainctl::cuda
