// Dropout whose mask is a pure function of a key, the sample and the place in the sample, so that
// the backward pass recomputes it and no worker count changes it.
#ifndef TRAINCTL_KERNELS_DROPOUT_H_
#define TRAINCTL_KERNELS_DROPOUT_H_

#include <cstdint>

#include "kernels/philox.h"

namespace trainctl::ops {

// The probability that is in fact used: a multiple of 2^-16, since each element draws 16 bits.
double DropoutProbability(double probability);

// In place on x[samples, width]: sets an element to zero with the given probability, else
// multiplies it by 1 / (1 - probability). Applied to the gradient it is its own backward pass.
// `ids` [samples] are the numbers of the samples in the data set. REQUIRES 0 <= probability < 1.
void Dropout(PhiloxKey key, double probability, const int64_t* ids, float* x, int64_t samples,
             int64_t width);

}  // namespace trainctl::ops

#endif  // TRAINCTL_KERNELS_DROPOUT_H_
