#ifndef TRAINCTL_KERNELS_CLASSIFIER_REFERENCE_H_
#define TRAINCTL_KERNELS_CLASSIFIER_REFERENCE_H_

#include <cmath>
#include <cstdint>

namespace trainctl::reference {

inline double ClassifierForwardBackward(double* logits, const int32_t* targets, double scale,
                                        int64_t rows, int64_t classes) {
  double loss = 0;
  for (int64_t r = 0; r < rows; ++r) {
    double* x = logits + r * classes;
    double largest = x[0], sum = 0;
    for (int64_t i = 1; i < classes; ++i) largest = x[i] > largest ? x[i] : largest;
    for (int64_t i = 0; i < classes; ++i) sum += std::exp(x[i] - largest);
    loss += std::log(sum) + largest - x[targets[r]];
    for (int64_t i = 0; i < classes; ++i) {
      x[i] = scale * (std::exp(x[i] - largest) / sum - (i == targets[r] ? 1 : 0));
    }
  }
  return loss;
}

}  // namespace trainctl::reference

#endif  // TRAINCTL_KERNELS_CLASSIFIER_REFERENCE_H_
