// Data whose every word is known, made and compared on the GPU. All calls enqueue on `stream` of
// the current device and take its memory.
#ifndef TRAINCTL_RUNTIME_PREFLIGHT_PATTERN_H_
#define TRAINCTL_RUNTIME_PREFLIGHT_PATTERN_H_

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "runtime/device/stream.h"

namespace trainctl {

// Words that look random, of which no two places nor seeds have the same sequence.
absl::Status FillPattern(uint64_t* words, size_t count, uint64_t seed, CudaStream stream);
// Adds to `*wrong` how many words are not as FillPattern(seed) made them.
absl::Status CountWrongWords(const uint64_t* words, size_t count, uint64_t seed,
                             unsigned long long* wrong, CudaStream stream);

// One rank's terms of a sum, and whether the sum over `ranks` came out: whole numbers, so that it
// is exact in every order.
absl::Status FillTerms(float* terms, size_t count, int rank, CudaStream stream);
absl::Status CountWrongSums(const float* sums, size_t count, int ranks, unsigned long long* wrong,
                            CudaStream stream);

}  // namespace trainctl

#endif  // TRAINCTL_RUNTIME_PREFLIGHT_PATTERN_H_
