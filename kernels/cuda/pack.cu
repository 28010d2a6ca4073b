#include "kernels/cuda/pack.h"

#include "kernels/cuda/tensor_table.cuh"

namespace trainctl::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kElements = 4;  // a thread's, next to each other
constexpr int kUnroll = 4;
constexpr int kPiece = kThreads * kElements * kUnroll;

template <typename From, typename To>
__device__ void Copy(const From* from, To* to, int64_t n, float factor) {
  const bool aligned = reinterpret_cast<uintptr_t>(from) % (kElements * sizeof(From)) == 0 &&
                       reinterpret_cast<uintptr_t>(to) % (kElements * sizeof(To)) == 0;
  if (aligned && n >= kPiece) {
    float value[kUnroll][kElements];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      Load<kElements>(from + (u * kThreads + threadIdx.x) * kElements, value[u]);
    }
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
#pragma unroll
      for (int k = 0; k < kElements; ++k) value[u][k] *= factor;
      Store<kElements>(to + (u * kThreads + threadIdx.x) * kElements, value[u]);
    }
    return;
  }
  const int count = n < kPiece ? static_cast<int>(n) : kPiece;
  for (int i = threadIdx.x; i < count; i += kThreads) {
    to[i] = FromFloat<To>(ToFloat(from[i]) * factor);
  }
}

template <typename Tensor, typename Bucket, bool kPack>
__global__ void __launch_bounds__(kThreads)
    PackKernel(const __grid_constant__ TensorTable<PackItem> table, Bucket* bucket, float scale,
               const float* device_scale) {
  const int t = table.Find(blockIdx.x);
  const PackItem& item = table.item[t];
  const int64_t begin = static_cast<int64_t>(blockIdx.x - table.blocks_before[t]) * kPiece;
  Tensor* tensor = static_cast<Tensor*>(item.tensor) + begin;
  Bucket* place = bucket + item.offset + begin;
  const float factor = device_scale == nullptr ? scale : scale * *device_scale;
  if constexpr (kPack) {
    Copy(tensor, place, item.n - begin, factor);
  } else {
    Copy(place, tensor, item.n - begin, factor);
  }
}

template <bool kPack>
absl::Status Launch(absl::Span<const PackItem> items, Dtype tensor_type, void* bucket,
                    Dtype bucket_type, float scale, const float* device_scale,
                    cudaStream_t stream) {
  return WithType(tensor_type, [&](auto tensor) {
    return WithType(bucket_type, [&](auto element) {
      using Tensor = typename decltype(tensor)::Type;
      using Bucket = typename decltype(element)::Type;
      return ForTables(
          items, kPiece, [](const PackItem& item) { return item.n; },
          [&](const TensorTable<PackItem>& table, int blocks) {
            PackKernel<Tensor, Bucket, kPack><<<blocks, kThreads, 0, stream>>>(
                table, static_cast<Bucket*>(bucket), scale, device_scale);
            return LaunchStatus(kPack ? "Pack" : "Unpack");
          });
    });
  });
}

}  // namespace

absl::Status Pack(absl::Span<const PackItem> items, Dtype tensor_type, void* bucket,
                  Dtype bucket_type, float scale, const float* device_scale, cudaStream_t stream) {
  return Launch<true>(items, tensor_type, bucket, bucket_type, scale, device_scale, stream);
}

absl::Status Unpack(absl::Span<const PackItem> items, Dtype tensor_type, const void* bucket,
                    Dtype bucket_type, float scale, const float* device_scale,
                    cudaStream_t stream) {
  return Launch<false>(items, tensor_type, const_cast<void*>(bucket), bucket_type, scale,
                       device_scale, stream);
}

}  // namespace trainctl::cuda
