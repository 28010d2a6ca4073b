#include "kernels/embedding.h"

#include "runtime/base/check.h"

namespace trainctl::ops {

void EmbeddingForward(const int32_t* tokens, const float* token, const float* position, float* y,
                      int64_t samples, int64_t context, int64_t width, int64_t vocabulary) {
  for (int64_t k = 0; k < samples * context; ++k) {
    CHECK(tokens[k] >= 0 && tokens[k] < vocabulary);
    const float* a = token + tokens[k] * width;
    const float* b = position + k % context * width;
    float* out = y + k * width;
    for (int64_t i = 0; i < width; ++i) out[i] = a[i] + b[i];
  }
}

void EmbeddingBackward(const int32_t* tokens, const float* dy, float* dtoken, float* dposition,
                       int64_t samples, int64_t context, int64_t width) {
  for (int64_t k = 0; k < samples * context; ++k) {
    float* a = dtoken + tokens[k] * width;
    float* b = dposition + k % context * width;
    const float* d = dy + k * width;
    for (int64_t i = 0; i < width; ++i) {
      a[i] += d[i];
      b[i] += d[i];
    }
  }
}

}  // namespace trainctl::ops
