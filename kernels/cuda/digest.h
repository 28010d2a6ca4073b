// A 64-bit digest of each of many tensors, for the check that ranks hold the same bits.
#ifndef TRAINCTL_KERNELS_CUDA_DIGEST_H_
#define TRAINCTL_KERNELS_CUDA_DIGEST_H_

#include <cuda_runtime_api.h>

#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"

namespace trainctl::cuda {

struct DigestTensor {
  const void* data;  // on a 4-byte boundary
  int64_t bytes;
};

// digests[t] (on the device) = the digest that kernels/cuda/digest_reference.h defines, of tensor
// t's bytes. It is a sum over words, so that it depends on neither launch nor GPU. `tensors` is
// read before the call returns.
absl::Status Digest(absl::Span<const DigestTensor> tensors, uint64_t* digests, cudaStream_t stream);

}  // namespace trainctl::cuda

#endif  // TRAINCTL_KERNELS_CUDA_DIGEST_H_
