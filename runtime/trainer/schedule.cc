#include "runtime/trainer/schedule.h"

#include <algorithm>
#include <cmath>

namespace trainctl {

double LearningRate(const Schedule& s, int64_t step) {
  if (step < s.warmup_steps) {
    return s.peak * static_cast<double>(step + 1) / static_cast<double>(s.warmup_steps);
  }
  if (s.decay == Schedule::Decay::kConstant) return s.peak;
  const int64_t span = std::max<int64_t>(s.total_steps - s.warmup_steps, 1);
  const double done =
      std::min(1.0, static_cast<double>(step - s.warmup_steps) / static_cast<double>(span));
  constexpr double kPi = 3.141592653589793;
  const double shape =
      s.decay == Schedule::Decay::kLinear ? 1 - done : 0.5 * (1 + std::cos(kPi * done));
  return s.peak * (s.floor + (1 - s.floor) * shape);
}

}  // namespace trainctl
