// What the operations of this folder share on the device: elements of any type as float vectors,
// sums of a block in a fixed order; and on the host, the choice of a type and the status of a
// launch.
#ifndef TRAINCTL_KERNELS_CUDA_DEVICE_CUH_
#define TRAINCTL_KERNELS_CUDA_DEVICE_CUH_

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <type_traits>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "kernels/cuda/dtype.h"
#include "runtime/device/cuda_error.h"

namespace trainctl::cuda {

constexpr int kWarp = 32;

__device__ inline float ToFloat(float x) { return x; }
__device__ inline float ToFloat(__nv_bfloat16 x) { return __bfloat162float(x); }
__device__ inline float ToFloat(__half x) { return __half2float(x); }

template <typename T>
__device__ inline T FromFloat(float x) {
  if constexpr (sizeof(T) == 4) {
    return x;
  } else if constexpr (std::is_same_v<T, __half>) {
    return __float2half_rn(x);
  } else {
    return __float2bfloat16_rn(x);
  }
}

template <typename T>
__device__ inline float Rounded(float x) {
  return ToFloat(FromFloat<T>(x));
}

// A register, or up to four, of elements as they lie in memory.
template <int kBytes>
struct Bits;
template <>
struct Bits<2> {
  using Type = uint16_t;
};
template <>
struct Bits<4> {
  using Type = uint32_t;
};
template <>
struct Bits<8> {
  using Type = uint2;
};
template <>
struct Bits<16> {
  using Type = uint4;
};

// Elements of a 16-byte vector.
template <typename T>
constexpr int kVector = 16 / sizeof(T);

// kOnce: the data will not be read again soon, so that it may leave the cache first.
enum class Reuse { kSoon, kOnce };

// N consecutive elements, on a boundary of N elements (of 16 bytes where that is more).
template <int N, Reuse kReuse = Reuse::kSoon, typename T>
__device__ inline void Load(const T* p, float* out) {
  constexpr int kPart = N * sizeof(T) > 16 ? kVector<T> : N;
  using Raw = typename Bits<kPart * sizeof(T)>::Type;
#pragma unroll
  for (int part = 0; part < N / kPart; ++part) {
    const Raw* from = reinterpret_cast<const Raw*>(p + part * kPart);
    union {
      Raw raw;
      T element[kPart];
    } bits = {kReuse == Reuse::kOnce ? __ldcs(from) : *from};
#pragma unroll
    for (int i = 0; i < kPart; ++i) out[part * kPart + i] = ToFloat(bits.element[i]);
  }
}

template <int N, Reuse kReuse = Reuse::kSoon, typename T>
__device__ inline void Store(T* p, const float* in) {
  constexpr int kPart = N * sizeof(T) > 16 ? kVector<T> : N;
  using Raw = typename Bits<kPart * sizeof(T)>::Type;
#pragma unroll
  for (int part = 0; part < N / kPart; ++part) {
    union {
      Raw raw;
      T element[kPart];
    } bits = {};
#pragma unroll
    for (int i = 0; i < kPart; ++i) bits.element[i] = FromFloat<T>(in[part * kPart + i]);
    Raw* to = reinterpret_cast<Raw*>(p + part * kPart);
    if constexpr (kReuse == Reuse::kOnce) {
      __stcs(to, bits.raw);
    } else {
      *to = bits.raw;
    }
  }
}

template <typename T>
__device__ inline T WarpSum(T value) {
#pragma unroll
  for (int step = kWarp / 2; step > 0; step /= 2) value += __shfl_xor_sync(~0u, value, step);
  return value;
}

// Sums of each of N values over the threads of a block of whole warps, for every thread. `shared`
// has room for N values a warp and is not written again before all have read it: a caller that sums
// twice gives two places.
template <int N, typename T>
__device__ inline void BlockSum(T (&value)[N], T* shared) {
  const int warps = blockDim.x / kWarp;
#pragma unroll
  for (int k = 0; k < N; ++k) value[k] = WarpSum(value[k]);
  if (warps == 1) return;
  if (threadIdx.x % kWarp == 0) {
#pragma unroll
    for (int k = 0; k < N; ++k) shared[threadIdx.x / kWarp * N + k] = value[k];
  }
  __syncthreads();
#pragma unroll
  for (int k = 0; k < N; ++k) {
    value[k] = shared[k];
    for (int w = 1; w < warps; ++w) value[k] += shared[w * N + k];
  }
}

template <typename T>
struct TypeTag {
  using Type = T;
};

template <typename T>
constexpr Dtype kDtype = std::is_same_v<T, float>    ? Dtype::kFloat32
                         : std::is_same_v<T, __half> ? Dtype::kFloat16
                                                     : Dtype::kBfloat16;

// Calls body(TypeTag<T>) with the element type that `type` names.
template <typename Body>
absl::Status WithType(Dtype type, Body&& body) {
  switch (type) {
    case Dtype::kFloat32:
      return body(TypeTag<float>());
    case Dtype::kBfloat16:
      return body(TypeTag<__nv_bfloat16>());
    case Dtype::kFloat16:
      return body(TypeTag<__half>());
  }
  return absl::InvalidArgumentError(
      absl::StrCat("GPU operation: there is no element type ", static_cast<int>(type)));
}

inline bool Aligned(const void* p, int64_t bytes) {
  return reinterpret_cast<uintptr_t>(p) % static_cast<uintptr_t>(bytes) == 0;
}

// Calls body(TypeTag<G>) with the element type of gradients beside activations of type T: the same,
// or float32.
template <typename T, typename Body>
absl::Status WithGradientType(Dtype type, Body&& body) {
  if (type == Dtype::kFloat32) return body(TypeTag<float>());
  if (type == kDtype<T>) return body(TypeTag<T>());
  return absl::InvalidArgumentError(absl::StrCat(
      "GPU operation: gradients of type ", static_cast<int>(type), " beside activations of type ",
      static_cast<int>(kDtype<T>), "; they are of the same type, or float32"));
}

constexpr int64_t CeilDivide(int64_t a, int64_t b) { return (a + b - 1) / b; }

}  // namespace trainctl::cuda

#endif  // TRAINCTL_KERNELS_CUDA_DEVICE_CUH_
