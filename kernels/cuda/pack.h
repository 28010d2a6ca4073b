// Copies tensors into one buffer (a bucket of gradients) and back, with a cast and a factor.
#ifndef TRAINCTL_KERNELS_CUDA_PACK_H_
#define TRAINCTL_KERNELS_CUDA_PACK_H_

#include <cuda_runtime_api.h>

#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "kernels/cuda/dtype.h"

namespace trainctl::cuda {

// A tensor and its place in the bucket. Places that are multiples of 8 elements are copied fastest.
struct PackItem {
  void* tensor;
  int64_t offset;  // of its first element in the bucket, in elements
  int64_t n;
};

// bucket[offset + i] = tensor[i] * scale * *device_scale, computed in float32 and rounded to
// nearest once. `device_scale` may be null. What lies between the items is not touched. `items` is
// read before the call returns. REQUIRES: items do not overlap in the bucket.
absl::Status Pack(absl::Span<const PackItem> items, Dtype tensor_type, void* bucket,
                  Dtype bucket_type, float scale, const float* device_scale, cudaStream_t stream);

// tensor[i] = bucket[offset + i] * scale * *device_scale.
absl::Status Unpack(absl::Span<const PackItem> items, Dtype tensor_type, const void* bucket,
                    Dtype bucket_type, float scale, const float* device_scale, cudaStream_t stream);

}  // namespace trainctl::cuda

#endif  // TRAINCTL_KERNELS_CUDA_PACK_H_
