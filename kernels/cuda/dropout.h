// Dropout with the mask of kernels/dropout.h: the same bits for the same key, sample and place.
#ifndef TRAINCTL_KERNELS_CUDA_DROPOUT_H_
#define TRAINCTL_KERNELS_CUDA_DROPOUT_H_

#include <cuda_runtime_api.h>

#include <cstdint>

#include "absl/status/status.h"
#include "kernels/cuda/dtype.h"
#include "kernels/philox.h"

namespace trainctl::cuda {

// In place on x[samples, width]: as ops::Dropout; applied to the gradient it is its own backward
// pass. `ids` [samples], on the device, are the numbers of the samples in the data set.
// REQUIRES 0 <= probability < 1.
absl::Status Dropout(Dtype type, ops::PhiloxKey key, double probability, const int64_t* ids,
                     void* x, int64_t samples, int64_t width, cudaStream_t stream);

}  // namespace trainctl::cuda

#endif  // TRAINCTL_KERNELS_CUDA_DROPOUT_H_
