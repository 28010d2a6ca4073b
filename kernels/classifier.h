// Softmax, cross entropy and its gradient in one pass over the logits.
#ifndef TRAINCTL_KERNELS_CLASSIFIER_H_
#define TRAINCTL_KERNELS_CLASSIFIER_H_

#include <cstdint>

namespace trainctl::ops {

// In place: logits[rows, classes] becomes scale * d(sum of losses)/d(logits). Returns the sum over
// rows of -log softmax(logits)[target], in double. REQUIRES 0 <= targets[r] < classes.
double ClassifierForwardBackward(float* logits, const int32_t* targets, float scale, int64_t rows,
                                 int64_t classes);

struct ClassifierResult {
  double loss_sum;
  int64_t correct;  // rows whose first largest logit is the target's
};
// The loss alone, and top-1. REQUIRES as above.
ClassifierResult ClassifierEvaluate(const float* logits, const int32_t* targets, int64_t rows,
                                    int64_t classes);

}  // namespace trainctl::ops

#endif  // TRAINCTL_KERNELS_CLASSIFIER_H_
