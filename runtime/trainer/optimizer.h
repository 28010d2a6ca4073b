// Optimizers over all parameters of a model. State is plain arrays, named for a checkpoint.
#ifndef TRAINCTL_RUNTIME_TRAINER_OPTIMIZER_H_
#define TRAINCTL_RUNTIME_TRAINER_OPTIMIZER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/trainer/model.h"

namespace trainctl {

struct OptimizerOptions {
  enum class Kind { kSgd, kAdamW };
  Kind kind = Kind::kAdamW;
  double momentum = 0.9;  // sgd
  double beta1 = 0.9;     // adamw
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 0.01;  // of parameters with ParameterSpec::decay
};

// One array of the state, as long as its parameter. `name` is unique: "exp_avg.NAME" and
// "exp_avg_sq.NAME" (adamw), "momentum.NAME" (sgd).
struct OptimizerState {
  std::string name;
  int parameter;
  float* data;
};

// Not thread-safe. Owns its state, which starts as zero.
class Optimizer {
 public:
  Optimizer(const OptimizerOptions& options, std::vector<ParameterSpec> parameters);

  // One update of every parameter. `step` counts from 0 and is the only number besides state() that
  // an update depends on. Gradients are multiplied by gradient_scale first (clipping). Pointers are
  // in the order of the specs.
  void Step(const std::vector<float*>& parameters, const std::vector<float*>& gradients,
            double learning_rate, double gradient_scale, int64_t step);

  // Valid as long as the optimizer. A checkpoint reads these arrays, a restart fills them.
  const std::vector<OptimizerState>& state() const { return state_; }

 private:
  const OptimizerOptions options_;
  const std::vector<ParameterSpec> specs_;
  std::vector<std::vector<float>> arrays_;
  std::vector<OptimizerState> state_;
};

}  // namespace trainctl

#endif  // TRAINCTL_RUNTIME_TRAINER_OPTIMIZER_H_
