// Vectors that wait in registers as they lie in memory, where floats would need twice as many; and
// exponentials as exact as a type needs.
#ifndef TRAINCTL_KERNELS_CUDA_PACKED_CUH_
#define TRAINCTL_KERNELS_CUDA_PACKED_CUH_

#include "kernels/cuda/device.cuh"

namespace trainctl::cuda {

// N elements, of at most 16 bytes together.
template <typename T, int N>
struct Packed {
  union {
    typename Bits<N * sizeof(T)>::Type raw;
    T element[N];
  };

  __device__ Packed() : raw{} {}
  __device__ void Read(const T* p) { raw = *reinterpret_cast<const decltype(raw)*>(p); }
  __device__ void Write(T* p) const { *reinterpret_cast<decltype(raw)*>(p) = raw; }
  __device__ float operator[](int i) const { return ToFloat(element[i]); }
};

// 2^x in one instruction: its relative error is 2^-22, which is enough for 16-bit types.
__device__ inline float QuickExp2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// e^(x - base). With 16-bit types the product is rounded once for all x that share a base.
template <typename T>
__device__ inline float ExpFrom(float x, float base) {
  if constexpr (sizeof(T) == 4) {
    return expf(x - base);
  } else {
    constexpr float kLog2E = 1.44269504f;
    return QuickExp2(fmaf(x, kLog2E, -base * kLog2E));
  }
}

template <typename T>
__device__ inline float Inverse(float x) {
  return sizeof(T) == 4 ? 1.0f / x : __fdividef(1.0f, x);
}

}  // namespace trainctl::cuda

#endif  // TRAINCTL_KERNELS_CUDA_PACKED_CUH_
