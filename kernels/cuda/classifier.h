// Softmax, cross entropy and its gradient in place of the logits.
#ifndef TRAINCTL_KERNELS_CUDA_CLASSIFIER_H_
#define TRAINCTL_KERNELS_CUDA_CLASSIFIER_H_

#include <cuda_runtime_api.h>

#include <cstdint>

#include "absl/status/status.h"
#include "kernels/cuda/dtype.h"

namespace trainctl::cuda {

// logits[rows, stride] of which columns classes … stride - 1 are padding: they are not read as
// logits, and their gradient is zero. A stride of a multiple of 16 bytes is fastest.
struct ClassifierShape {
  int64_t rows, classes, stride;
};

// In place: logits become scale * *loss_scale * d(sum of losses)/d(logits); losses[rows] =
// -log softmax(logits)[target]. `loss_scale` (on the device) may be null (1). The loss and the
// gradients of a row whose target is out of range are NaN.
absl::Status ClassifierForwardBackward(Dtype type, void* logits, const int32_t* targets,
                                       float scale, const float* loss_scale, float* losses,
                                       const ClassifierShape& shape, cudaStream_t stream);

// The losses alone; correct[rows] = 1 where the first largest logit is the target's, else 0.
absl::Status ClassifierEvaluate(Dtype type, const void* logits, const int32_t* targets,
                                float* losses, int32_t* correct, const ClassifierShape& shape,
                                cudaStream_t stream);

struct ClassifierTotals {
  double loss_sum;
  int64_t correct;
};

// *totals (on the device) += the sums over rows, in a fixed order. `correct` may be null.
absl::Status AddTotals(const float* losses, const int32_t* correct, int64_t rows,
                       ClassifierTotals* totals, cudaStream_t stream);

}  // namespace trainctl::cuda

#endif  // TRAINCTL_KERNELS_CUDA_CLASSIFIER_H_
