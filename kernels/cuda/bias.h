// Gradient of a bias: sums over rows in a fixed order.
#ifndef TRAINCTL_KERNELS_CUDA_BIAS_H_
#define TRAINCTL_KERNELS_CUDA_BIAS_H_

#include <cuda_runtime_api.h>

#include <cstdint>

#include "absl/status/status.h"
#include "kernels/cuda/dtype.h"

namespace trainctl::cuda {

// Bytes of workspace for the bias gradient of [rows, width], here and in gelu.h and relu.h; needs
// no zeroing.
int64_t BiasWorkspace(int64_t rows, int64_t width);

// db[width], of gradient_type, += the sum of dy[rows, width] over rows.
absl::Status BiasBackward(Dtype type, const void* dy, Dtype gradient_type, void* db,
                          void* workspace, int64_t rows, int64_t width, cudaStream_t stream);

}  // namespace trainctl::cuda

#endif  // TRAINCTL_KERNELS_CUDA_BIAS_H_
