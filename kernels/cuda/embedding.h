// Sum of a token's and a position's learned vectors.
#ifndef TRAINCTL_KERNELS_CUDA_EMBEDDING_H_
#define TRAINCTL_KERNELS_CUDA_EMBEDDING_H_

#include <cuda_runtime_api.h>

#include <cstdint>

#include "absl/status/status.h"
#include "kernels/cuda/dtype.h"

namespace trainctl::cuda {

struct EmbeddingShape {
  int64_t samples, context, width, vocabulary;
  int64_t rows() const { return samples * context; }
};

// y[samples, context, width] = token[tokens[s, t]] + position[t], with token[vocabulary, width],
// position[context, width], all of one type. The row of a token out of range becomes NaN, so that
// the loss shows it.
absl::Status EmbeddingForward(Dtype type, const int32_t* tokens, const void* token,
                              const void* position, void* y, const EmbeddingShape& shape,
                              cudaStream_t stream);

// Bytes of workspace for the backward pass; needs no zeroing.
int64_t EmbeddingWorkspace(const EmbeddingShape& shape);

// Adds to dtoken and dposition, of gradient_type (`type` or float32); rows of one token in the
// order of their places. Tokens out of range are left out. dposition may be null, dtoken too.
absl::Status EmbeddingBackward(Dtype type, const int32_t* tokens, const void* dy,
                               Dtype gradient_type, void* dtoken, void* dposition, void* workspace,
                               const EmbeddingShape& shape, cudaStream_t stream);

}  // namespace trainctl::cuda

#endif  // TRAINCTL_KERNELS_CUDA_EMBEDDING_H_
