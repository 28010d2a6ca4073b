#include "kernels/cuda/compress.h"

#include <cuda_fp8.h>

#include <cfloat>

#include "kernels/cuda/device.cuh"

namespace trainctl::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kElements = 4;                               // a lane's, next to each other
constexpr int kHalves = kCodeBlock / (kWarp * kElements);  // of these a lane has in a block
constexpr float kSmallest = 1e-36f;

template <Code kCode>
constexpr float kLargest = kCode == Code::kInt8 ? 127.0f : 448.0f;

template <Code kCode>
__device__ uint8_t Encode(float x) {
  if constexpr (kCode == Code::kInt8) {
    return static_cast<uint8_t>(static_cast<int8_t>(rintf(fminf(fmaxf(x, -127.0f), 127.0f))));
  } else {
    return __nv_cvt_float_to_fp8(x, __NV_SATFINITE, __NV_E4M3);
  }
}

template <Code kCode>
__device__ float Decode(uint8_t code) {
  if constexpr (kCode == Code::kInt8) {
    return static_cast<float>(static_cast<int8_t>(code));
  } else {
    return __half2float(__half(__nv_cvt_fp8_to_halfraw(code, __NV_E4M3)));
  }
}

__device__ uint8_t* Codes(void* part, int64_t blocks) {
  return static_cast<uint8_t*>(part) + (blocks * 4 + 15) / 16 * 16;
}

// Four elements from index i on; those from n on are zero.
template <typename T>
__device__ void LoadFour(const T* p, int64_t i, int64_t n, bool aligned, float* out) {
  if (aligned && i + kElements <= n) {
    Load<kElements>(p + i, out);
    return;
  }
#pragma unroll
  for (int k = 0; k < kElements; ++k) out[k] = i + k < n ? ToFloat(p[i + k]) : 0.0f;
}

template <typename T>
__device__ void StoreFour(T* p, int64_t i, int64_t n, bool aligned, const float* in) {
  if (aligned && i + kElements <= n) {
    Store<kElements>(p + i, in);
    return;
  }
#pragma unroll
  for (int k = 0; k < kElements; ++k) {
    if (i + k < n) p[i + k] = FromFloat<T>(in[k]);
  }
}

// A warp for each block of codes.
template <Code kCode, typename T>
__global__ void __launch_bounds__(kThreads)
    CompressKernel(const T* values, float scale, float* error, void* out, int64_t n, int64_t blocks,
                   bool aligned) {
  const int64_t block = static_cast<int64_t>(blockIdx.x) * (kThreads / kWarp) + threadIdx.x / kWarp;
  if (block >= blocks) return;
  const int lane = threadIdx.x % kWarp;
  const int64_t first = block * kCodeBlock + lane * kElements;
  constexpr int kStride = kWarp * kElements;
  float v[kHalves][kElements];
  float largest = 0;
  bool finite = true;
#pragma unroll
  for (int h = 0; h < kHalves; ++h) LoadFour(values, first + h * kStride, n, aligned, v[h]);
#pragma unroll
  for (int h = 0; h < kHalves; ++h) {
    float carried[kElements] = {};
    if (error != nullptr) LoadFour(error, first + h * kStride, n, aligned, carried);
#pragma unroll
    for (int k = 0; k < kElements; ++k) {
      v[h][k] = v[h][k] * scale + carried[k];
      finite = finite && fabsf(v[h][k]) <= FLT_MAX;
      largest = fmaxf(largest, fabsf(v[h][k]));
    }
  }
  finite = __all_sync(~0u, finite);
#pragma unroll
  for (int step = kWarp / 2; step > 0; step /= 2) {
    largest = fmaxf(largest, __shfl_xor_sync(~0u, largest, step));
  }
  const bool zero = !finite || largest < kSmallest;
  const float unit = !finite ? NAN : zero ? 0.0f : largest / kLargest<kCode>;
  const float inverse = zero ? 0.0f : kLargest<kCode> / largest;
  if (lane == 0) static_cast<float*>(out)[block] = unit;
  uint8_t* codes = Codes(out, blocks);
#pragma unroll
  for (int h = 0; h < kHalves; ++h) {
    uint32_t word = 0;
    float left[kElements];
#pragma unroll
    for (int k = 0; k < kElements; ++k) {
      const uint8_t code = zero ? uint8_t{0} : Encode<kCode>(v[h][k] * inverse);
      word |= static_cast<uint32_t>(code) << 8 * k;
      left[k] = v[h][k] - unit * Decode<kCode>(code);
    }
    *reinterpret_cast<uint32_t*>(codes + first + h * kStride) = word;
    if (error != nullptr && finite) StoreFour(error, first + h * kStride, n, aligned, left);
  }
}

template <Code kCode, typename T>
__global__ void __launch_bounds__(kThreads)
    DecompressKernel(const char* parts, int64_t part_count, int64_t part_stride, float scale,
                     T* values, int64_t n, int64_t blocks, bool aligned) {
  const int64_t block = static_cast<int64_t>(blockIdx.x) * (kThreads / kWarp) + threadIdx.x / kWarp;
  if (block >= blocks) return;
  const int64_t first = block * kCodeBlock + threadIdx.x % kWarp * kElements;
  constexpr int kStride = kWarp * kElements;
  float sum[kHalves][kElements] = {};
#pragma unroll 4
  for (int64_t p = 0; p < part_count; ++p) {
    const char* part = parts + p * part_stride;
    const float unit = reinterpret_cast<const float*>(part)[block];
    const uint8_t* codes = Codes(const_cast<char*>(part), blocks);
#pragma unroll
    for (int h = 0; h < kHalves; ++h) {
      const uint32_t word = *reinterpret_cast<const uint32_t*>(codes + first + h * kStride);
#pragma unroll
      for (int k = 0; k < kElements; ++k) {
        sum[h][k] += unit * Decode<kCode>(static_cast<uint8_t>(word >> 8 * k));
      }
    }
  }
#pragma unroll
  for (int h = 0; h < kHalves; ++h) {
#pragma unroll
    for (int k = 0; k < kElements; ++k) sum[h][k] *= scale;
    StoreFour(values, first + h * kStride, n, aligned, sum[h]);
  }
}

template <typename Body>
absl::Status WithCode(Code code, Body&& body) {
  switch (code) {
    case Code::kInt8:
      return body(std::integral_constant<Code, Code::kInt8>());
    case Code::kFp8:
      return body(std::integral_constant<Code, Code::kFp8>());
  }
  return absl::InvalidArgumentError(
      absl::StrCat("compression of gradients: there is no code ", static_cast<int>(code)));
}

int Grid(int64_t n) { return static_cast<int>(CeilDivide(CodeBlocks(n), kThreads / kWarp)); }

}  // namespace

absl::Status Compress(Code code, Dtype type, const void* values, float scale, float* error,
                      void* out, int64_t n, cudaStream_t stream) {
  if (n == 0) return absl::OkStatus();
  return WithCode(code, [&](auto which) {
    return WithType(type, [&](auto tag) {
      using T = typename decltype(tag)::Type;
      const bool aligned = Aligned(values, kElements * sizeof(T)) && Aligned(error, 16);
      CompressKernel<which.value, T><<<Grid(n), kThreads, 0, stream>>>(
          static_cast<const T*>(values), scale, error, out, n, CodeBlocks(n), aligned);
      return LaunchStatus("Compress");
    });
  });
}

absl::Status DecompressSum(Code code, const void* parts, int64_t part_count, int64_t part_stride,
                           float scale, Dtype type, void* values, int64_t n, cudaStream_t stream) {
  if (n == 0) return absl::OkStatus();
  return WithCode(code, [&](auto which) {
    return WithType(type, [&](auto tag) {
      using T = typename decltype(tag)::Type;
      const bool aligned = Aligned(values, kElements * sizeof(T));
      DecompressKernel<which.value, T><<<Grid(n), kThreads, 0, stream>>>(
          static_cast<const char*>(parts), part_count, part_stride, scale, static_cast<T*>(values),
          n, CodeBlocks(n), aligned);
      return LaunchStatus("DecompressSum");
    });
  });
}

}  // namespace trainctl::cuda
