// How an update rounds float32 master weights to the copy that the model computes with.
#ifndef TRAINCTL_KERNELS_CUDA_ROUNDING_H_
#define TRAINCTL_KERNELS_CUDA_ROUNDING_H_

#include <cstdint>

#include "kernels/philox.h"

namespace trainctl::cuda {

struct CopyRounding {
  bool stochastic = false;  // up or down with the probability that keeps the mean; bfloat16 only
  uint64_t seed = 0;
};

// The random words of elements 4 group … 4 group + 3 at a step.
TRAINCTL_ANYWHERE inline ops::PhiloxBlock RoundingWords(uint64_t seed, int64_t step,
                                                        int64_t group) {
  const uint64_t s = static_cast<uint64_t>(step), g = static_cast<uint64_t>(group);
  return ops::Philox({{static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)}},
                     {{static_cast<uint32_t>(g), static_cast<uint32_t>(g >> 32),
                       static_cast<uint32_t>(s), static_cast<uint32_t>(s >> 32)}});
}

// The bits of the bfloat16 that a finite float32 rounds to: the half that is cut off carries into
// the rest with the probability of its share of a step.
TRAINCTL_ANYWHERE inline uint16_t RoundStochastically(uint32_t float_bits, uint32_t random_word) {
  return static_cast<uint16_t>((float_bits + (random_word >> 16)) >> 16);
}

}  // namespace trainctl::cuda

#endif  // TRAINCTL_KERNELS_CUDA_ROUNDING_H_
