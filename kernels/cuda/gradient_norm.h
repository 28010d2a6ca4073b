// Sum of squares of gradients and the first tensor that is not finite, in one pass.
#ifndef TRAINCTL_KERNELS_CUDA_GRADIENT_NORM_H_
#define TRAINCTL_KERNELS_CUDA_GRADIENT_NORM_H_

#include <cuda_runtime_api.h>

#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "kernels/cuda/dtype.h"

namespace trainctl::cuda {

struct GradientTensor {
  void* data;  // only Unscale writes to it
  int64_t n;
};

// What *first_bad is where every value is finite: the minimum over ranks is then the agreement.
constexpr int32_t kAllFinite = INT32_MAX;

// Bytes of workspace for SumOfSquares of these tensors; needs no zeroing.
int64_t SumOfSquaresWorkspace(absl::Span<const GradientTensor> tensors);

// *sum = the sum of squares of all elements, in double (on the device). It does not overflow for
// finite float32. The order is fixed by the sizes alone, so that every GPU gives the same bits.
// *first_bad = the lowest number of a tensor that has an element not finite, else kAllFinite.
// `tensors` is read before the call returns.
absl::Status SumOfSquares(absl::Span<const GradientTensor> tensors, Dtype type, void* workspace,
                          double* sum, int32_t* first_bad, cudaStream_t stream);

// In place: every element times factor / *loss_scale; *first_bad as above, of the values before.
// The updates (adamw.h, sgd.h) do this in their own pass: this is for gradients that others read.
// `loss_scale` may be null (1).
absl::Status Unscale(absl::Span<const GradientTensor> tensors, Dtype type, float factor,
                     const float* loss_scale, int32_t* first_bad, cudaStream_t stream);

}  // namespace trainctl::cuda

#endif  // TRAINCTL_KERNELS_CUDA_GRADIENT_NORM_H_
