// How an update rounds float32 master weights to the copy that the model computes with.
#ifndef TRAINCTL_KERNELS_CUDA_ROUNDING_H_
#define TRAINCTL_KERNELS_CUDA_ROUNDING_H_

#include <cstdint>

namespace trainctl::cuda {

struct CopyRounding {
  bool stochastic = false;  // up or down with the probability that keeps the mean; bfloat16 only
  uint64_t seed = 0;
};

}  // namespace trainctl::cuda

#endif  // TRAINCTL_KERNELS_CUDA_ROUNDING_H_
