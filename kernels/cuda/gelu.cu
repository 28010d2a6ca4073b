#include "kernels/cuda/gelu.h"

#include "kernels/cuda/packed.cuh"
#include "kernels/cuda/rows.cuh"

namespace trainctl::cuda {
namespace {

template <typename T, int N>
struct Gelu {
  T* derivative;  // null: not wanted
  T* y;

  __device__ void operator()(const float (&x)[N], int64_t at) const {
    // As in kernels/gelu.cc: (1 + tanh u) / 2 is the logistic function of 2 u.
    constexpr float kSlope = 1.59576912f;  // 2 sqrt(2 / pi)
    constexpr float kCubic = 0.044715f * 1.59576912f;
    float value[N], slope[N];
#pragma unroll
    for (int k = 0; k < N; ++k) {
      const float v = x[k], square = v * v;
      const float e = ExpFrom<T>(-v * (square * kCubic + kSlope), 0.0f);
      const float s = Inverse<T>(1.0f + e);
      value[k] = v * s;
      // 1 - s without its cancellation; e may be infinite, where s is zero.
      const float rest = e > 1e30f ? 1.0f : e * s;
      slope[k] = s + v * (square * (3 * kCubic) + kSlope) * (s * rest);
    }
    Store<N>(y + at, value);
    if (derivative != nullptr) Store<N>(derivative + at, slope);
  }
};

struct TimesDerivative {
  static constexpr bool kWrites = true;
  __device__ float operator()(float dy, float derivative) const { return dy * derivative; }
};

}  // namespace

absl::Status BiasGeluForward(Dtype type, const void* b, void* x, void* y, int64_t rows,
                             int64_t width, cudaStream_t stream) {
  return WithType(type, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    T* const in = static_cast<T*>(x);
    T* const out = static_cast<T*>(y);
    return LaunchForwardRows<T>("BiasGeluForward", in, static_cast<const T*>(b), out, rows, width,
                                stream, [&](auto n) {
                                  return Gelu<T, n.value>{out == in ? nullptr : in, out};
                                });
  });
}

absl::Status BiasGeluBackward(Dtype type, const void* derivative, void* dy, Dtype gradient_type,
                              void* db, void* workspace, int64_t rows, int64_t width,
                              cudaStream_t stream) {
  return WithType(type, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    return LaunchBackwardRows<T>("BiasGeluBackward", static_cast<const T*>(derivative),
                                 static_cast<T*>(dy), gradient_type, db, workspace, rows, width,
                                 TimesDerivative(), stream);
  });
}

}  // namespace trainctl::cuda
