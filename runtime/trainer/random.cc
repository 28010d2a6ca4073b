#include "runtime/trainer/random.h"

#include <cmath>

namespace trainctl {
namespace {

ops::PhiloxBlock BlockAt(ops::PhiloxKey key, int64_t block) {
  const uint64_t b = static_cast<uint64_t>(block);
  return ops::Philox(key, {{static_cast<uint32_t>(b), static_cast<uint32_t>(b >> 32), 0, 0}});
}

}  // namespace

ops::PhiloxKey StreamKey(uint64_t seed, RandomPurpose purpose, uint64_t number, uint32_t place) {
  // The seed's own stream, at the place that the purpose names, gives the key of the new stream.
  const ops::PhiloxKey root = {{static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)}};
  const ops::PhiloxBlock block =
      ops::Philox(root, {{static_cast<uint32_t>(number), static_cast<uint32_t>(number >> 32),
                          static_cast<uint32_t>(purpose), place}});
  return {{block.word[0], block.word[1]}};
}

void FillUniform(ops::PhiloxKey key, float low, float high, float* x, int64_t n) {
  for (int64_t i = 0; i < n; i += 4) {
    const ops::PhiloxBlock block = BlockAt(key, i / 4);
    for (int64_t k = 0; k < 4 && i + k < n; ++k) {
      // 24 bits: every value is exact in float and below 1.
      const float u = static_cast<float>(block.word[k] >> 8) * 0x1p-24f;
      x[i + k] = low + (high - low) * u;
    }
  }
}

void FillNormal(ops::PhiloxKey key, float mean, float deviation, float* x, int64_t n) {
  constexpr double kTwoPi = 6.283185307179586;
  for (int64_t i = 0; i < n; i += 4) {
    const ops::PhiloxBlock block = BlockAt(key, i / 4);
    for (int64_t k = 0; k < 4 && i + k < n; ++k) {
      const uint32_t* pair = block.word + (k & ~1);
      const double radius = std::sqrt(-2 * std::log((pair[0] + 0.5) * 0x1p-32));
      const double angle = kTwoPi * pair[1] * 0x1p-32;
      const double z = radius * ((k & 1) == 0 ? std::cos(angle) : std::sin(angle));
      x[i + k] = static_cast<float>(mean + deviation * z);
    }
  }
}

}  // namespace trainctl
