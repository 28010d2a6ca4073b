// The second half of sums over rows: partial sums of groups of rows are added up in a fixed order.
#ifndef TRAINCTL_KERNELS_CUDA_COLUMN_SUMS_CUH_
#define TRAINCTL_KERNELS_CUDA_COLUMN_SUMS_CUH_

#include "kernels/cuda/device.cuh"

namespace trainctl::cuda {

constexpr int kColumnThreads = 16;  // threads that share a column

// out[width] += the sum of partials[groups, width] over groups. Block (32, kColumnThreads); row y
// of the grid takes the y-th of the partial arrays and of the outputs.
template <typename G>
__global__ void __launch_bounds__(kWarp* kColumnThreads)
    AddColumnSums(const float* partials, int groups, int64_t width, G* out0, G* out1) {
  __shared__ float sums[kColumnThreads][kWarp];
  const int64_t column = static_cast<int64_t>(blockIdx.x) * kWarp + threadIdx.x;
  const float* from = partials + blockIdx.y * groups * width;
  float sum = 0;
  if (column < width) {
#pragma unroll 8
    for (int g = threadIdx.y; g < groups; g += kColumnThreads) sum += from[g * width + column];
  }
  sums[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y != 0 || column >= width) return;
#pragma unroll
  for (int y = 1; y < kColumnThreads; ++y) sum += sums[y][threadIdx.x];
  G* out = (blockIdx.y == 0 ? out0 : out1) + column;
  *out = FromFloat<G>(ToFloat(*out) + sum);
}

// One output, or two (out1 not null), of gradient_type.
inline absl::Status FinishColumnSums(const float* partials, int groups, int64_t width,
                                     Dtype gradient_type, void* out0, void* out1,
                                     cudaStream_t stream) {
  return WithType(gradient_type, [&](auto tag) {
    using G = typename decltype(tag)::Type;
    const dim3 grid(static_cast<unsigned>(CeilDivide(width, kWarp)), out1 == nullptr ? 1 : 2);
    AddColumnSums<G><<<grid, dim3(kWarp, kColumnThreads), 0, stream>>>(
        partials, groups, width, static_cast<G*>(out0), static_cast<G*>(out1));
    return LaunchStatus("sum over rows");
  });
}

}  // namespace trainctl::cuda

#endif  // TRAINCTL_KERNELS_CUDA_COLUMN_SUMS_CUH_
