#include "kernels/cuda/relu.h"

#include "kernels/cuda/rows.cuh"

namespace trainctl::cuda {
namespace {

template <typename T, int N>
struct Relu {
  T* y;

  __device__ void operator()(float (&x)[N], int64_t at) const {
#pragma unroll
    for (int k = 0; k < N; ++k) x[k] = x[k] < 0 ? 0.0f : x[k];  // NaN stays
    Store<N>(y + at, x);
  }
};

struct WherePositive {
  static constexpr bool kWrites = true;
  float scale;
  __device__ float operator()(float dy, float y) const { return y > 0 ? dy * scale : 0.0f; }
};

}  // namespace

absl::Status BiasReluForward(Dtype type, const void* b, void* y, int64_t rows, int64_t width,
                             cudaStream_t stream) {
  return WithType(type, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    T* const data = static_cast<T*>(y);
    return LaunchForwardRows<T>("BiasReluForward", data, static_cast<const T*>(b), data, rows,
                                width, stream, [&](auto n) { return Relu<T, n.value>{data}; });
  });
}

absl::Status BiasReluBackward(Dtype type, const void* y, float scale, void* dy, Dtype gradient_type,
                              void* db, void* workspace, int64_t rows, int64_t width,
                              cudaStream_t stream) {
  return WithType(type, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    return LaunchBackwardRows<T>("BiasReluBackward", static_cast<const T*>(y), static_cast<T*>(dy),
                                 gradient_type, db, workspace, rows, width, WherePositive{scale},
                                 stream);
  });
}

}  // namespace trainctl::cuda
