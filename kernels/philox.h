// Philox4x32-10 (Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", 2011):
// a random stream as a pure function of key and counter, so that a value depends on what it is
// for and not on who computes it or when.
#ifndef TRAINCTL_KERNELS_PHILOX_H_
#define TRAINCTL_KERNELS_PHILOX_H_

#include <cstdint>

#ifdef __CUDACC__
#define TRAINCTL_ANYWHERE __host__ __device__
#else
#define TRAINCTL_ANYWHERE
#endif

namespace trainctl::ops {

struct PhiloxKey {
  uint32_t word[2];
};

struct PhiloxBlock {
  uint32_t word[4];
};

// The block at `counter` of the stream `key`.
TRAINCTL_ANYWHERE inline __attribute__((always_inline)) PhiloxBlock Philox(PhiloxKey key,
                                                                           PhiloxBlock counter) {
  uint32_t k0 = key.word[0], k1 = key.word[1];
  uint32_t c0 = counter.word[0], c1 = counter.word[1], c2 = counter.word[2], c3 = counter.word[3];
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = uint64_t{0xD2511F53} * c0;
    const uint64_t b = uint64_t{0xCD9E8D57} * c2;
    c0 = static_cast<uint32_t>(b >> 32) ^ c1 ^ k0;
    c1 = static_cast<uint32_t>(b);
    c2 = static_cast<uint32_t>(a >> 32) ^ c3 ^ k1;
    c3 = static_cast<uint32_t>(a);
    k0 += 0x9E3779B9;
    k1 += 0xBB67AE85;
  }
  return {{c0, c1, c2, c3}};
}

}  // namespace trainctl::ops

#endif  // TRAINCTL_KERNELS_PHILOX_H_
