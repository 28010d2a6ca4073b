// Causal self-attention of all heads: softmax(q kᵀ / sqrt(size of a head)) v, where position t sees
// positions 0 … t of its own sample.
#ifndef TRAINCTL_KERNELS_ATTENTION_H_
#define TRAINCTL_KERNELS_ATTENTION_H_

#include <cstdint>

namespace trainctl::ops {

struct AttentionShape {
  int64_t samples, context, heads, head_size;
  int64_t width() const { return heads * head_size; }
};

// Floats of scratch memory that either pass needs.
int64_t AttentionScratch(const AttentionShape& shape);

// qkv[samples, context, 3 width] holds q, k and v, each with its heads side by side;
// y[samples, context, width]. log_sums[samples, heads, context] (the logarithm of each row's sum of
// exponentials) is kept for the backward pass, which computes the probabilities again rather than
// keeping context² of them.
void AttentionForward(const AttentionShape& shape, const float* qkv, float* y, float* log_sums,
                      float* scratch);

// dqkv is overwritten.
void AttentionBackward(const AttentionShape& shape, const float* dy, const float* qkv,
                       const float* y, const float* log_sums, float* dqkv, float* scratch);

}  // namespace trainctl::ops

#endif  // TRAINCTL_KERNELS_ATTENTION_H_
