// Sum of a token's and a position's learned vectors.
#ifndef TRAINCTL_KERNELS_EMBEDDING_H_
#define TRAINCTL_KERNELS_EMBEDDING_H_

#include <cstdint>

namespace trainctl::ops {

// y[samples, context, width] = token[tokens[s, t]] + position[t], with token[vocabulary, width] and
// position[context, width]. REQUIRES 0 <= tokens[s, t] < vocabulary.
void EmbeddingForward(const int32_t* tokens, const float* token, const float* position, float* y,
                      int64_t samples, int64_t context, int64_t width, int64_t vocabulary);

// Adds to dtoken and dposition.
void EmbeddingBackward(const int32_t* tokens, const float* dy, float* dtoken, float* dposition,
                       int64_t samples, int64_t context, int64_t width);

}  // namespace trainctl::ops

#endif  // TRAINCTL_KERNELS_EMBEDDING_H_
