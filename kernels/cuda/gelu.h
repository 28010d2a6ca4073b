// Gaussian error linear unit in its tanh form, fused with the bias of the layer before it; the
// formula is kernels/gelu.h's.
#ifndef TRAINCTL_KERNELS_CUDA_GELU_H_
#define TRAINCTL_KERNELS_CUDA_GELU_H_

#include <cuda_runtime_api.h>

#include <cstdint>

#include "absl/status/status.h"
#include "kernels/cuda/bias.h"
#include "kernels/cuda/dtype.h"

namespace trainctl::cuda {

// y[rows, width] = gelu(x + b[width]), and in place: x becomes the derivative there, which is all
// that the backward pass needs. b may be null (the product added it). y may be x where the
// derivative is not wanted (evaluation, recomputation).
absl::Status BiasGeluForward(Dtype type, const void* b, void* x, void* y, int64_t rows,
                             int64_t width, cudaStream_t stream);

// In place on dy: dy *= derivative, and db[width], of gradient_type, += its sum over rows (of the
// rounded dy). Workspace: BiasWorkspace.
absl::Status BiasGeluBackward(Dtype type, const void* derivative, void* dy, Dtype gradient_type,
                              void* db, void* workspace, int64_t rows, int64_t width,
                              cudaStream_t stream);

}  // namespace trainctl::cuda

#endif  // TRAINCTL_KERNELS_CUDA_GELU_H_
