#ifndef TRAINCTL_KERNELS_CUDA_DIGEST_REFERENCE_H_
#define TRAINCTL_KERNELS_CUDA_DIGEST_REFERENCE_H_

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "kernels/philox.h"

namespace trainctl::reference {

// A word's share of a digest. The finaliser of splitmix64 (Steele, Lea, Flood, "Fast splittable
// pseudorandom number generators", 2014): a bijection, so that two tensors that differ in one word
// differ in their digests.
TRAINCTL_ANYWHERE inline uint64_t DigestWord(uint64_t word, uint64_t place) {
  uint64_t x = word ^ (place + 1) * 0x9E3779B97F4A7C15;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EB;
  return x ^ (x >> 31);
}

// The sum of all words' shares, of 8 bytes each, the last filled up with zeros.
inline uint64_t Digest(const void* data, int64_t bytes) {
  uint64_t sum = 0;
  for (int64_t at = 0; at < bytes; at += 8) {
    uint64_t word = 0;
    std::memcpy(&word, static_cast<const char*>(data) + at,
                static_cast<size_t>(std::min<int64_t>(8, bytes - at)));
    sum += DigestWord(word, static_cast<uint64_t>(at / 8));
  }
  return sum;
}

}  // namespace trainctl::reference

#endif  // TRAINCTL_KERNELS_CUDA_DIGEST_REFERENCE_H_
