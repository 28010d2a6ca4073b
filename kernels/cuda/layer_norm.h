// Layer normalisation, fused with the addition to the residual stream before it.
#ifndef TRAINCTL_KERNELS_CUDA_LAYER_NORM_H_
#define TRAINCTL_KERNELS_CUDA_LAYER_NORM_H_

#include <cuda_runtime_api.h>

#include <cstdint>

#include "absl/status/status.h"
#include "kernels/cuda/dtype.h"

namespace trainctl::cuda {

// Widths: multiples of 16 bytes up to 16 KiB a row, all pointers on 16-byte boundaries; and any
// width up to 1024 on any boundary. Others are INVALID_ARGUMENT.

// sum = x + residual (null: sum is not written and x is normalised); then
//   y = (sum - mean) * inverse_deviation * weight[width] + bias[width], by row, of the rounded sum.
// All of `type` but mean[rows] and inverse_deviation[rows], which are kept for the backward pass.
// `sum` may be x or residual.
absl::Status ResidualNormForward(Dtype type, const void* x, const void* residual,
                                 const void* weight, const void* bias, void* sum, void* y,
                                 float* mean, float* inverse_deviation, int64_t rows, int64_t width,
                                 cudaStream_t stream);

// Bytes of workspace for the backward pass; needs no zeroing.
int64_t ResidualNormWorkspace(int64_t rows, int64_t width);

// dx[rows, width] += the gradient through the norm: dx holds the gradient of the residual stream
// above, and then that below; or is overwritten where `first` (nothing above). x is the sum of the
// forward pass. dweight[width] and dbias[width], of gradient_type, are added to.
absl::Status ResidualNormBackward(Dtype type, const void* dy, const void* x, const float* mean,
                                  const float* inverse_deviation, const void* weight, bool first,
                                  void* dx, Dtype gradient_type, void* dweight, void* dbias,
                                  void* workspace, int64_t rows, int64_t width,
                                  cudaStream_t stream);

}  // namespace trainctl::cuda

#endif  // TRAINCTL_KERNELS_CUDA_LAYER_NORM_H_
