#include "kernels/cuda/dropout.h"

#include <algorithm>
#include <cmath>

#include "kernels/cuda/device.cuh"

namespace trainctl::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kElements = 8;  // draws in a Philox block

template <typename T, bool kAligned>
__global__ void __launch_bounds__(kThreads)
    DropoutKernel(ops::PhiloxKey key, uint32_t threshold, float scale, const int64_t* ids, T* x,
                  int64_t samples, int64_t width) {
  const int64_t block = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  const int64_t first = block * kElements;
  if (first >= width) return;
  for (int64_t s = blockIdx.y; s < samples; s += gridDim.y) {
    const uint64_t id = static_cast<uint64_t>(ids[s]);
    const ops::PhiloxBlock draws =
        ops::Philox(key, {{static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32),
                           static_cast<uint32_t>(id), static_cast<uint32_t>(id >> 32)}});
    T* row = x + s * width;
    if constexpr (kAligned) {
      float v[kElements];
      Load<kElements>(row + first, v);
#pragma unroll
      for (int k = 0; k < kElements; ++k) {
        const uint32_t draw = draws.word[k / 2] >> 16 * (k % 2) & 0xFFFF;
        v[k] = draw < threshold ? 0.0f : v[k] * scale;
      }
      Store<kElements>(row + first, v);
    } else {
#pragma unroll
      for (int k = 0; k < kElements; ++k) {
        const uint32_t draw = draws.word[k / 2] >> 16 * (k % 2) & 0xFFFF;
        T* at = row + first + k;
        if (first + k < width) *at = FromFloat<T>(draw < threshold ? 0.0f : ToFloat(*at) * scale);
      }
    }
  }
}

}  // namespace

absl::Status Dropout(Dtype type, ops::PhiloxKey key, double probability, const int64_t* ids,
                     void* x, int64_t samples, int64_t width, cudaStream_t stream) {
  if (!(probability >= 0 && probability < 1)) {
    return absl::InvalidArgumentError(absl::StrCat("Dropout: the probability is ", probability,
                                                   ", which is not at least 0 and below 1"));
  }
  if (samples == 0 || width == 0) return absl::OkStatus();
  const uint32_t threshold =
      static_cast<uint32_t>(std::min(std::lround(probability * 65536.0), 65535L));
  const float scale = static_cast<float>(1.0 / (1.0 - threshold / 65536.0));
  const dim3 grid(static_cast<unsigned>(CeilDivide(width, kThreads * kElements)),
                  static_cast<unsigned>(std::min<int64_t>(samples, 65535)));
  return WithType(type, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    T* data = static_cast<T*>(x);
    if (width % kElements == 0 && Aligned(x, 16)) {
      DropoutKernel<T, true>
          <<<grid, kThreads, 0, stream>>>(key, threshold, scale, ids, data, samples, width);
    } else {
      DropoutKernel<T, false>
          <<<grid, kThreads, 0, stream>>>(key, threshold, scale, ids, data, samples, width);
    }
    return LaunchStatus("Dropout");
  });
}

}  // namespace trainctl::cuda
