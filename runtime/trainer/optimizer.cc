#include "runtime/trainer/optimizer.h"

#include <utility>

#include "kernels/adamw.h"
#include "kernels/sgd.h"
#include "runtime/base/check.h"

namespace trainctl {

Optimizer::Optimizer(const OptimizerOptions& options, std::vector<ParameterSpec> parameters)
    : options_(options), specs_(std::move(parameters)) {
  const std::vector<std::string> kinds = options.kind == OptimizerOptions::Kind::kAdamW
                                             ? std::vector<std::string>{"exp_avg.", "exp_avg_sq."}
                                             : std::vector<std::string>{"momentum."};
  for (const std::string& kind : kinds) {
    for (int p = 0; p < static_cast<int>(specs_.size()); ++p) {
      arrays_.emplace_back(static_cast<size_t>(specs_[p].size()), 0.0f);
      state_.push_back({kind + specs_[p].name, p, arrays_.back().data()});
    }
  }
}

void Optimizer::Step(const std::vector<float*>& parameters, const std::vector<float*>& gradients,
                     double learning_rate, double gradient_scale, int64_t step) {
  const size_t count = specs_.size();
  CHECK(parameters.size() == count && gradients.size() == count);
  for (size_t p = 0; p < count; ++p) {
    const double decay = specs_[p].decay ? options_.weight_decay : 0;
    const int64_t n = specs_[p].size();
    if (options_.kind == OptimizerOptions::Kind::kAdamW) {
      ops::AdamW({.learning_rate = learning_rate,
                  .beta1 = options_.beta1,
                  .beta2 = options_.beta2,
                  .epsilon = options_.epsilon,
                  .weight_decay = decay,
                  .gradient_scale = gradient_scale,
                  .step = step + 1},
                 parameters[p], gradients[p], state_[p].data, state_[count + p].data, n);
    } else {
      ops::Sgd({.learning_rate = learning_rate,
                .momentum = options_.momentum,
                .weight_decay = decay,
                .gradient_scale = gradient_scale},
               parameters[p], gradients[p], state_[p].data, n);
    }
  }
}

}  // namespace trainctl
