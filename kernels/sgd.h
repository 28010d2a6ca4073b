// Gradient descent with momentum, one pass over memory.
#ifndef TRAINCTL_KERNELS_SGD_H_
#define TRAINCTL_KERNELS_SGD_H_

#include <cstdint>

namespace trainctl::ops {

struct SgdStep {
  double learning_rate;
  double momentum;
  double weight_decay;    // added to the gradient (not decoupled); 0: none
  double gradient_scale;  // multiplies the gradient first (clipping); 1: none
};

// With g = gradient * gradient_scale + weight_decay p, for each of n elements:
//   velocity = momentum velocity + g,  p = p - lr velocity.
void Sgd(const SgdStep& step, float* parameter, const float* gradient, float* velocity, int64_t n);

}  // namespace trainctl::ops

#endif  // TRAINCTL_KERNELS_SGD_H_
