// Causal self-attention of all heads on a GPU: kernels/attention.h on device memory.
//
// Head sizes 32, 64 and 128 in bf16 or fp16 run on tensor cores, tile by tile, with the softmax
// kept online, so that nothing of context² elements is ever in memory. Every other case, float32
// above all, runs the same tiles in plain float32 arithmetic. Sums have a fixed order in both: the
// same call gives the same bits.
#ifndef TRAINCTL_KERNELS_CUDA_ATTENTION_H_
#define TRAINCTL_KERNELS_CUDA_ATTENTION_H_

#include <cuda_runtime_api.h>

#include "absl/status/status.h"
#include "kernels/attention.h"
#include "kernels/cuda/dtype.h"

namespace trainctl::cuda {

constexpr int64_t kMaxHeadSize = 128;

// qkv[samples, context, 3 width] and y[samples, context, width] are of `type`, 16-byte aligned;
// log_sums[samples, heads, context] is kept for the backward pass. INVALID_ARGUMENT: a head larger
// than kMaxHeadSize, or more samples * heads than a grid holds (65 535).
absl::Status AttentionForward(Dtype type, const ops::AttentionShape& shape, const void* qkv,
                              void* y, float* log_sums, cudaStream_t stream);

// dqkv is overwritten. `row_dots` [samples, heads, context] is scratch.
absl::Status AttentionBackward(Dtype type, const ops::AttentionShape& shape, const void* dy,
                               const void* qkv, const void* y, const float* log_sums, void* dqkv,
                               float* row_dots, cudaStream_t stream);

}  // namespace trainctl::cuda

#endif  // TRAINCTL_KERNELS_CUDA_ATTENTION_H_
