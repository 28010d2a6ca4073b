#include "kernels/dropout.h"

#include <algorithm>
#include <cmath>

#include "kernels/vector.h"
#include "runtime/base/check.h"

namespace trainctl::ops {
namespace {

constexpr int64_t kBlocks = 16;             // Philox blocks computed together
constexpr int64_t kElements = kBlocks * 8;  // each gives 8 draws of 16 bits

// The eight draws of block b are word w = 0 … 3, low half then high half.
TRAINCTL_INLINE void Draw(PhiloxKey key, int64_t id, int64_t first_block, uint16_t* draws) {
  uint32_t words[4][kBlocks];
  for (int64_t b = 0; b < kBlocks; ++b) {
    const uint64_t block = static_cast<uint64_t>(first_block + b);
    const uint64_t sample = static_cast<uint64_t>(id);
    const PhiloxBlock r =
        Philox(key, {{static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32),
                      static_cast<uint32_t>(sample), static_cast<uint32_t>(sample >> 32)}});
    for (int w = 0; w < 4; ++w) words[w][b] = r.word[w];
  }
  for (int64_t b = 0; b < kBlocks; ++b) {
    for (int w = 0; w < 4; ++w) {
      draws[b * 8 + 2 * w] = static_cast<uint16_t>(words[w][b]);
      draws[b * 8 + 2 * w + 1] = static_cast<uint16_t>(words[w][b] >> 16);
    }
  }
}

TRAINCTL_INLINE void ApplyBody(PhiloxKey key, uint32_t threshold, float scale, const int64_t* ids,
                               float* x, int64_t samples, int64_t width) {
  for (int64_t s = 0; s < samples; ++s) {
    float* row = x + s * width;
    for (int64_t start = 0; start < width; start += kElements) {
      uint16_t draws[kElements];
      Draw(key, ids[s], start / 8, draws);
      const int64_t n = std::min(kElements, width - start);
      for (int64_t i = 0; i < n; ++i) {
        row[start + i] = draws[i] < threshold ? 0.0f : row[start + i] * scale;
      }
    }
  }
}

TRAINCTL_MULTIVERSION(void, Apply,
                      (PhiloxKey key, uint32_t threshold, float scale, const int64_t* ids, float* x,
                       int64_t samples, int64_t width),
                      (key, threshold, scale, ids, x, samples, width))

uint32_t Threshold(double probability) {
  CHECK(probability >= 0 && probability < 1);
  return static_cast<uint32_t>(std::min(std::lround(probability * 65536.0), 65535L));
}

}  // namespace

double DropoutProbability(double probability) { return Threshold(probability) / 65536.0; }

void Dropout(PhiloxKey key, double probability, const int64_t* ids, float* x, int64_t samples,
             int64_t width) {
  const uint32_t threshold = Threshold(probability);
  const double keep = 1.0 - threshold / 65536.0;
  Apply(key, threshold, static_cast<float>(1.0 / keep), ids, x, samples, width);
}

}  // namespace trainctl::ops
