#include "kernels/classifier.h"

#include <cmath>

#include "kernels/vector.h"
#include "runtime/base/check.h"

namespace trainctl::ops {
namespace {

// For NaN in the row the result is any element; the exponentials that follow carry the NaN.
TRAINCTL_INLINE float RowMax(const float* x, int64_t n) {
  Float8 largest = Splat(-__builtin_inff());
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) largest = Max(Load(x + i), largest);
  float m = Max(largest);
  for (; i < n; ++i) m = x[i] > m ? x[i] : m;
  return m;
}

TRAINCTL_INLINE float RowSumExp(const float* x, float largest, int64_t n) {
  Float8 sum{};
  ForVectors(
      n, [&](int64_t i, auto lanes) __attribute__((always_inline)) {
        sum += Keep(Exp(Load(x + i, lanes) - largest), lanes);
      });
  return Sum(sum);
}

TRAINCTL_INLINE double ClassifierForwardBackwardBody(float* logits, const int32_t* targets,
                                                     float scale, int64_t rows, int64_t classes) {
  double loss = 0;
  for (int64_t r = 0; r < rows; ++r) {
    float* x = logits + r * classes;
    const int32_t target = targets[r];
    CHECK(target >= 0 && target < classes);
    const float largest = RowMax(x, classes);
    const double target_logit = x[target];
    Float8 sums{};
    ForVectors(
        classes, [&](int64_t i, auto lanes) __attribute__((always_inline)) {
          const Float8 e = Exp(Load(x + i, lanes) - largest);
          Store(x + i, e, lanes);
          sums += Keep(e, lanes);
        });
    const float sum = Sum(sums);
    loss += std::log(static_cast<double>(sum)) + largest - target_logit;
    const float factor = scale / sum;
    ForVectors(
        classes, [&](int64_t i, auto lanes) __attribute__((always_inline)) {
          Store(x + i, Load(x + i, lanes) * factor, lanes);
        });
    x[target] -= scale;
  }
  return loss;
}

TRAINCTL_INLINE ClassifierResult ClassifierEvaluateBody(const float* logits, const int32_t* targets,
                                                        int64_t rows, int64_t classes) {
  ClassifierResult result{0, 0};
  for (int64_t r = 0; r < rows; ++r) {
    const float* x = logits + r * classes;
    const int32_t target = targets[r];
    CHECK(target >= 0 && target < classes);
    const float largest = RowMax(x, classes);
    const float sum = RowSumExp(x, largest, classes);
    result.loss_sum += std::log(static_cast<double>(sum)) + largest - x[target];
    int64_t first = 0;
    while (first < target && x[first] < x[target]) ++first;
    if (first == target && x[target] == largest) ++result.correct;
  }
  return result;
}

}  // namespace

TRAINCTL_MULTIVERSION(double, ClassifierForwardBackward,
                      (float* logits, const int32_t* targets, float scale, int64_t rows,
                       int64_t classes),
                      (logits, targets, scale, rows, classes))
TRAINCTL_MULTIVERSION(ClassifierResult, ClassifierEvaluate,
                      (const float* logits, const int32_t* targets, int64_t rows, int64_t classes),
                      (logits, targets, rows, classes))

}  // namespace trainctl::ops
