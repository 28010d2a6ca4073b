// AdamW (Loshchilov, Hutter, "Decoupled weight decay regularization", 2019), one pass over memory.
#ifndef TRAINCTL_KERNELS_ADAMW_H_
#define TRAINCTL_KERNELS_ADAMW_H_

#include <cstdint>

namespace trainctl::ops {

struct AdamWStep {
  double learning_rate;
  double beta1, beta2, epsilon;
  double weight_decay;    // 0: none
  double gradient_scale;  // multiplies the gradient first (clipping); 1: none
  int64_t step;           // 1 for the first step; corrects the bias of the moments
};

// With g = gradient * gradient_scale, for each of n elements:
//   m = beta1 m + (1 - beta1) g,  v = beta2 v + (1 - beta2) g²,
//   p = p (1 - lr decay) - lr m / (1 - beta1^step) / (sqrt(v / (1 - beta2^step)) + epsilon).
void AdamW(const AdamWStep& step, float* parameter, const float* gradient, float* first_moment,
           float* second_moment, int64_t n);

}  // namespace trainctl::ops

#endif  // TRAINCTL_KERNELS_ADAMW_H_
