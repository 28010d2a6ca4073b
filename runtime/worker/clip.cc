#include "runtime/worker/clip.h"

#include <cmath>
#include <cstddef>

namespace trainctl {
namespace {

// Independent sums, so that the loop is not one long chain of additions; their number is part of
// the result's bits and does not depend on the machine.
constexpr size_t kLanes = 16;

double SumOfSquares(absl::Span<const float> values) {
  double lanes[kLanes] = {};
  size_t i = 0;
  for (; i + kLanes <= values.size(); i += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane) {
      const double value = static_cast<double>(values[i + lane]);
      lanes[lane] += value * value;
    }
  }
  for (; i < values.size(); ++i) {
    lanes[0] += static_cast<double>(values[i]) * static_cast<double>(values[i]);
  }
  double sum = 0;
  for (const double lane : lanes) sum += lane;
  return sum;
}

}  // namespace

double GlobalNorm(absl::Span<const absl::Span<float>> tensors) {
  double sum = 0;
  for (const absl::Span<float>& tensor : tensors) sum += SumOfSquares(tensor);
  return std::sqrt(sum);
}

double ClipByGlobalNorm(absl::Span<const absl::Span<float>> tensors, double max_norm) {
  const double norm = GlobalNorm(tensors);
  const double scale = max_norm / (norm + 1e-6);
  if (!std::isfinite(norm) || scale >= 1) return norm;
  const float factor = static_cast<float>(scale);
  for (const absl::Span<float>& tensor : tensors) {
    for (float& value : tensor) value *= factor;
  }
  return norm;
}

}  // namespace trainctl
