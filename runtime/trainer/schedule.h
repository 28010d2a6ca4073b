// The learning rate as a pure function of the step.
#ifndef TRAINCTL_RUNTIME_TRAINER_SCHEDULE_H_
#define TRAINCTL_RUNTIME_TRAINER_SCHEDULE_H_

#include <cstdint>

namespace trainctl {

struct Schedule {
  enum class Decay { kConstant, kLinear, kCosine };
  double peak = 1e-3;
  int64_t warmup_steps = 0;  // rises linearly: step s of them has peak * (s + 1) / warmup_steps
  int64_t total_steps = 0;   // the decay ends here; later steps have the floor
  Decay decay = Decay::kConstant;
  double floor = 0;  // as a share of the peak
};

// `step` counts from 0.
double LearningRate(const Schedule& schedule, int64_t step);

}  // namespace trainctl

#endif  // TRAINCTL_RUNTIME_TRAINER_SCHEDULE_H_
