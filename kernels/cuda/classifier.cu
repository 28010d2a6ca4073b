#include "kernels/cuda/classifier.h"

#include <cuda_pipeline.h>

#include <algorithm>

#include "kernels/cuda/packed.cuh"

namespace trainctl::cuda {
namespace {

constexpr int kThreads = 512;
constexpr int kWarps = kThreads / kWarp;
constexpr int kTotalThreads = 1024;

// The largest of what a thread saw and the sum of exp(x - largest).
struct Softmax {
  float largest = -INFINITY, sum = 0;

  template <typename T, int N>
  __device__ void Add(const float (&x)[N]) {
    float top = x[0];
#pragma unroll
    for (int k = 1; k < N; ++k) top = fmaxf(top, x[k]);
    if (top > largest) {
      sum *= ExpFrom<T>(largest, top);
      largest = top;
    }
    const float base = largest == -INFINITY ? 0.0f : largest;
#pragma unroll
    for (int k = 0; k < N; ++k) sum += ExpFrom<T>(x[k], base);
  }

  // Joins those of all threads of the block, for every thread. NaN anywhere makes the sum NaN.
  __device__ void Join() {
    __shared__ float largests[kWarps], sums[kWarps];
    float top = largest;
#pragma unroll
    for (int step = kWarp / 2; step > 0; step /= 2) {
      top = fmaxf(top, __shfl_xor_sync(~0u, top, step));
    }
    sum = WarpSum(sum * (largest == -INFINITY ? 0.0f : expf(largest - top)));
    if (threadIdx.x % kWarp == 0) {
      largests[threadIdx.x / kWarp] = top;
      sums[threadIdx.x / kWarp] = sum;
    }
    __syncthreads();
    const int warps = blockDim.x / kWarp;
    largest = largests[0];
    for (int w = 1; w < warps; ++w) largest = fmaxf(largest, largests[w]);
    sum = 0;
    for (int w = 0; w < warps; ++w) sum += sums[w] * expf(largests[w] - largest);
  }
};

// Goes through a row; see(values, column) gets vectors, with -infinity for padding.
template <int N, typename T, typename See>
__device__ void ForRow(const T* x, int classes, See&& see) {
  constexpr int kUnroll = 4;
  const int stride = blockDim.x * N;
  for (int first = threadIdx.x * N; first < classes; first += stride * kUnroll) {
    Packed<T, N> packed[kUnroll];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      if (first + u * stride < classes) packed[u].Read(x + first + u * stride);
    }
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      const int column = first + u * stride;
      if (column >= classes) break;
      float v[N];
#pragma unroll
      for (int k = 0; k < N; ++k) v[k] = packed[u][k];
      if (column + N > classes) {
#pragma unroll
        for (int k = 0; k < N; ++k) v[k] = column + k < classes ? v[k] : -INFINITY;
      }
      see(v, column);
    }
  }
}

// A block for each row. If kCached, the row is copied to shared memory without a detour through
// registers, so that all of it is on its way at once, and is read once. Each thread reads there
// only what it copied itself.
template <typename T, int N, bool kCached>
__global__ void __launch_bounds__(kThreads, 2)
    ForwardBackwardKernel(T* logits, const int32_t* targets, float scale, const float* loss_scale,
                          float* losses, int classes, int stride) {
  extern __shared__ uint4 row_cache[];
  T* const cache = reinterpret_cast<T*>(row_cache);
  T* const x = logits + static_cast<int64_t>(blockIdx.x) * stride;
  const int32_t target = targets[blockIdx.x];
  const bool known = target >= 0 && target < classes;
  const float target_logit = known ? ToFloat(x[target]) : NAN;
  if (loss_scale != nullptr) scale *= *loss_scale;
  Softmax softmax;
  if constexpr (kCached) {
    for (int column = threadIdx.x * N; column < classes; column += blockDim.x * N) {
      __pipeline_memcpy_async(cache + column, x + column, N * sizeof(T));
    }
    __pipeline_commit();
    __pipeline_wait_prior(0);
  }
  const T* const from = kCached ? cache : x;
  ForRow<N>(from, classes, [&](const float(&v)[N], int) { softmax.Add<T>(v); });
  softmax.Join();
  if (threadIdx.x == 0) {
    losses[blockIdx.x] = logf(softmax.sum) + (softmax.largest - target_logit);
  }
  const float factor = known ? scale / softmax.sum : NAN;
#pragma unroll 4
  for (int column = threadIdx.x * N; column < stride; column += blockDim.x * N) {
    float v[N] = {};
    if (column < classes) {
      Load<N>(from + column, v);
#pragma unroll
      for (int k = 0; k < N; ++k) v[k] = ExpFrom<T>(v[k], softmax.largest) * factor;
      if (static_cast<unsigned>(target - column) < N) {
#pragma unroll
        for (int k = 0; k < N; ++k) v[k] -= column + k == target ? scale : 0.0f;
      }
      if (column + N > classes) {
#pragma unroll
        for (int k = 0; k < N; ++k) v[k] = column + k < classes ? v[k] : 0.0f;
      }
    }
    Store<N>(x + column, v);
  }
}

template <typename T, int N>
__global__ void __launch_bounds__(kThreads, 2)
    EvaluateKernel(const T* logits, const int32_t* targets, float* losses, int32_t* correct,
                   int classes, int stride) {
  const T* const x = logits + static_cast<int64_t>(blockIdx.x) * stride;
  const int32_t target = targets[blockIdx.x];
  const bool known = target >= 0 && target < classes;
  const float target_logit = known ? ToFloat(x[target]) : NAN;
  bool beaten = !(target_logit == target_logit);
  Softmax softmax;
  ForRow<N>(x, classes, [&](const float(&v)[N], int column) {
    softmax.Add<T>(v);
    // Before the target an equal logit beats it, too.
    const bool before = column + N <= target;
#pragma unroll
    for (int k = 0; k < N; ++k) {
      if (v[k] > target_logit) beaten = true;
      if ((before || column + k < target) && !(v[k] < target_logit)) beaten = true;
    }
  });
  softmax.Join();
  beaten = __syncthreads_or(beaten);
  if (threadIdx.x == 0) {
    losses[blockIdx.x] = logf(softmax.sum) + (softmax.largest - target_logit);
    correct[blockIdx.x] = beaten ? 0 : 1;
  }
}

__global__ void __launch_bounds__(kTotalThreads)
    TotalsKernel(const float* losses, const int32_t* correct, int64_t rows,
                 ClassifierTotals* totals) {
  __shared__ double sums[2 * kTotalThreads / kWarp];
  double sum[2] = {0, 0};  // counts are exact in double, too
  for (int64_t r = threadIdx.x; r < rows; r += kTotalThreads) {
    sum[0] += losses[r];
    if (correct != nullptr) sum[1] += correct[r];
  }
  BlockSum(sum, sums);
  if (threadIdx.x == 0) {
    totals->loss_sum += sum[0];
    totals->correct += static_cast<int64_t>(sum[1]);
  }
}

// Whether two blocks with so much shared memory each run on one processor of the current device.
bool TwoFit(int64_t bytes) {
  int device = 0, all = 0, reserved = 0;
  if (cudaGetDevice(&device) != cudaSuccess ||
      cudaDeviceGetAttribute(&all, cudaDevAttrMaxSharedMemoryPerMultiprocessor, device) !=
          cudaSuccess ||
      cudaDeviceGetAttribute(&reserved, cudaDevAttrReservedSharedMemoryPerBlock, device) !=
          cudaSuccess) {
    return false;
  }
  return 2 * (bytes + reserved + 1024) <= all;  // 1024: more than the kernel's own
}

absl::Status Check(const char* name, const ClassifierShape& shape) {
  if (shape.classes >= 1 && shape.stride >= shape.classes && shape.stride < INT32_MAX / 2 &&
      shape.rows < INT32_MAX) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat(name, ": ", shape.rows, " rows of ", shape.classes, " classes, ", shape.stride,
                   " apart; the classes of a row must fit between two rows"));
}

int Threads(int64_t columns, int n) {
  return static_cast<int>(
      std::min<int64_t>(kThreads, CeilDivide(CeilDivide(columns, n), kWarp) * kWarp));
}

template <typename T, typename Body>
absl::Status WithElements(const void* logits, const ClassifierShape& shape, Body&& body) {
  if (shape.stride % kVector<T> == 0 && Aligned(logits, 16)) {
    return body(std::integral_constant<int, kVector<T>>());
  }
  return body(std::integral_constant<int, 1>());
}

}  // namespace

absl::Status ClassifierForwardBackward(Dtype type, void* logits, const int32_t* targets,
                                       float scale, const float* loss_scale, float* losses,
                                       const ClassifierShape& shape, cudaStream_t stream) {
  if (shape.rows == 0) return absl::OkStatus();
  if (absl::Status status = Check("ClassifierForwardBackward", shape); !status.ok()) return status;
  return WithType(type, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    return WithElements<T>(logits, shape, [&](auto n) {
      const int64_t row = shape.stride * static_cast<int64_t>(sizeof(T));
      constexpr bool kVectors = n.value > 1;
      const bool cached = kVectors && TwoFit(row);
      const auto kernel = cached ? ForwardBackwardKernel<T, n.value, kVectors>
                                 : ForwardBackwardKernel<T, n.value, false>;
      const int shared = cached ? static_cast<int>(row) : 0;
      if (shared > 32 * 1024) {
        const absl::Status given = CudaStatus(
            cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared),
            absl::StrCat("ClassifierForwardBackward: take ", shared,
                         " bytes of shared memory for a row"));
        if (!given.ok()) return given;
      }
      kernel<<<static_cast<unsigned>(shape.rows), Threads(shape.stride, n.value), shared, stream>>>(
          static_cast<T*>(logits), targets, scale, loss_scale, losses,
          static_cast<int>(shape.classes), static_cast<int>(shape.stride));
      return LaunchStatus("ClassifierForwardBackward");
    });
  });
}

absl::Status ClassifierEvaluate(Dtype type, const void* logits, const int32_t* targets,
                                float* losses, int32_t* correct, const ClassifierShape& shape,
                                cudaStream_t stream) {
  if (shape.rows == 0) return absl::OkStatus();
  if (absl::Status status = Check("ClassifierEvaluate", shape); !status.ok()) return status;
  return WithType(type, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    return WithElements<T>(logits, shape, [&](auto n) {
      EvaluateKernel<T, n.value>
          <<<static_cast<unsigned>(shape.rows), Threads(shape.classes, n.value), 0, stream>>>(
              static_cast<const T*>(logits), targets, losses, correct,
              static_cast<int>(shape.classes), static_cast<int>(shape.stride));
      return LaunchStatus("ClassifierEvaluate");
    });
  });
}

absl::Status AddTotals(const float* losses, const int32_t* correct, int64_t rows,
                       ClassifierTotals* totals, cudaStream_t stream) {
  TotalsKernel<<<1, kTotalThreads, 0, stream>>>(losses, correct, rows, totals);
  return LaunchStatus("AddTotals");
}

}  // namespace trainctl::cuda
