// Rectified linear unit, fused with the bias of the layer before it.
#ifndef TRAINCTL_KERNELS_CUDA_RELU_H_
#define TRAINCTL_KERNELS_CUDA_RELU_H_

#include <cuda_runtime_api.h>

#include <cstdint>

#include "absl/status/status.h"
#include "kernels/cuda/bias.h"
#include "kernels/cuda/dtype.h"

namespace trainctl::cuda {

// In place: y[rows, width] = max(y + b[width], 0). b may be null.
absl::Status BiasReluForward(Dtype type, const void* b, void* y, int64_t rows, int64_t width,
                             cudaStream_t stream);

// In place on dy: dy = y > 0 ? dy * scale : 0, and db[width], of gradient_type, += its sum over
// rows. y and scale as in kernels/relu.h. Workspace: BiasWorkspace.
absl::Status BiasReluBackward(Dtype type, const void* y, float scale, void* dy, Dtype gradient_type,
                              void* db, void* workspace, int64_t rows, int64_t width,
                              cudaStream_t stream);

}  // namespace trainctl::cuda

#endif  // TRAINCTL_KERNELS_CUDA_RELU_H_
