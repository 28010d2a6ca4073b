// Random streams of a training run. Every stream is keyed by the run's seed, what it is for and a
// number within that purpose; a value is then a function of its place in the stream. Nothing
// depends on the number of workers or on which of them computes.
#ifndef TRAINCTL_RUNTIME_TRAINER_RANDOM_H_
#define TRAINCTL_RUNTIME_TRAINER_RANDOM_H_

#include <cstdint>

#include "kernels/philox.h"

namespace trainctl {

// Values are part of what a checkpoint means: never reuse or renumber one.
enum class RandomPurpose : uint32_t {
  kInitialize = 1,  // number: the parameter; place: the element
  kDropout = 2      // number: the step; place: the layer, then sample and element
};

// The key of one stream. `place` tells apart streams of one purpose and number.
ops::PhiloxKey StreamKey(uint64_t seed, RandomPurpose purpose, uint64_t number, uint32_t place = 0);

// x[i] is uniform in [low, high), normal with the given mean and deviation (Box-Muller).
void FillUniform(ops::PhiloxKey key, float low, float high, float* x, int64_t n);
void FillNormal(ops::PhiloxKey key, float mean, float deviation, float* x, int64_t n);

}  // namespace trainctl

#endif  // TRAINCTL_RUNTIME_TRAINER_RANDOM_H_
