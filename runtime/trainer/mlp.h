// Multi-layer perceptron: fully connected layers with ReLU between them and softmax at the end.
#ifndef TRAINCTL_RUNTIME_TRAINER_MLP_H_
#define TRAINCTL_RUNTIME_TRAINER_MLP_H_

#include <cstdint>
#include <vector>

#include "runtime/trainer/model.h"
#include "runtime/trainer/workspace.h"

namespace trainctl {

struct MlpOptions {
  int64_t inputs = 784;
  std::vector<int64_t> hidden = {512, 256};  // may be empty: logistic regression
  int64_t classes = 10;
  double dropout = 0;  // after each hidden layer; in [0, 1)
  uint64_t seed = 0;   // keys dropout
};

class Mlp final : public Model {
 public:
  // REQUIRES positive sizes.
  explicit Mlp(const MlpOptions& options);

  const std::vector<ParameterSpec>& parameters() const override { return specs_; }
  void Bind(std::vector<float*> parameters, std::vector<float*> gradients) override;
  // Weights of hidden layers are uniform with variance 2 / fan-in, of the last layer with variance
  // 1 / (3 fan-in); biases are zero.
  void Initialize(uint64_t seed) override;
  double ForwardBackward(const Batch& batch, float loss_scale, uint64_t step,
                         const GradientReady& ready) override;
  EvaluateResult Evaluate(const Batch& batch) override;

 private:
  int layers() const { return static_cast<int>(sizes_.size()) - 1; }
  void Reserve(int64_t samples);
  // Leaves the logits in outputs_.back(). `step` is null: no dropout.
  void Forward(const Batch& batch, const uint64_t* step);

  const MlpOptions options_;
  std::vector<int64_t> sizes_;  // inputs, hidden …, classes
  std::vector<ParameterSpec> specs_;
  std::vector<float*> parameters_, gradients_;  // weight and bias of layer l: 2 l, 2 l + 1

  Workspace workspace_;
  int64_t reserved_ = 0;         // samples
  std::vector<float*> outputs_;  // of each layer, after ReLU and dropout; the last: logits
  float* delta_[2] = {nullptr, nullptr};
};

}  // namespace trainctl

#endif  // TRAINCTL_RUNTIME_TRAINER_MLP_H_
