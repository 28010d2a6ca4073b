// A model with its own memory and a small data set, for tests.
#ifndef TRAINCTL_TESTS_UNIT_TRAINER_MODEL_CASE_H_
#define TRAINCTL_TESTS_UNIT_TRAINER_MODEL_CASE_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "runtime/trainer/model.h"
#include "runtime/trainer/optimizer.h"

namespace trainctl {

inline void IgnoreReady(int /*parameter*/) {}

class ModelCase {
 public:
  explicit ModelCase(std::unique_ptr<Model> model) : model_(std::move(model)) {
    for (const ParameterSpec& spec : model_->parameters()) {
      parameters_.emplace_back(static_cast<size_t>(spec.size()), 0.0f);
      gradients_.emplace_back(static_cast<size_t>(spec.size()), 0.0f);
    }
    model_->Bind(Pointers(parameters_), Pointers(gradients_));
    model_->Initialize(7);
  }

  static std::vector<float*> Pointers(std::vector<std::vector<float>>& arrays) {
    std::vector<float*> pointers;
    for (auto& array : arrays) pointers.push_back(array.data());
    return pointers;
  }

  Model& model() { return *model_; }
  std::vector<std::vector<float>>& parameters() { return parameters_; }
  std::vector<std::vector<float>>& gradients() { return gradients_; }
  void Update(Optimizer& optimizer, double learning_rate, int64_t step) {
    optimizer.Step(Pointers(parameters_), Pointers(gradients_), learning_rate, 1, step);
    ClearGradients();
  }
  void ClearGradients() {
    for (auto& g : gradients_) std::fill(g.begin(), g.end(), 0.0f);
  }

  // Compares the gradient along `directions` random directions of each parameter with a central
  // difference of the loss. Float32 losses carry the difference only roughly, hence the bound.
  void ExpectGradientsMatchFiniteDifferences(const Batch& batch, double bound) {
    constexpr uint64_t kStep = 3;
    ClearGradients();
    model_->ForwardBackward(batch, 1.0f, kStep, IgnoreReady);
    const auto gradients = gradients_;
    for (size_t p = 0; p < parameters_.size(); ++p) {
      // Along its own gradient the loss changes most, so rounding matters least.
      double norm = 0;
      for (float g : gradients[p]) norm += static_cast<double>(g) * g;
      norm = std::sqrt(norm);
      ASSERT_GT(norm, 0) << model_->parameters()[p].name;
      const auto saved = parameters_[p];
      const double h = 2e-3;
      double loss[2];
      for (int side : {0, 1}) {
        for (size_t i = 0; i < saved.size(); ++i) {
          parameters_[p][i] =
              static_cast<float>(saved[i] + (side == 0 ? -h : h) * gradients[p][i] / norm);
        }
        loss[side] = model_->ForwardBackward(batch, 1.0f, kStep, IgnoreReady);
      }
      parameters_[p] = saved;
      EXPECT_NEAR((loss[1] - loss[0]) / (2 * h) / norm, 1.0, bound) << model_->parameters()[p].name;
    }
  }

  // The loss and the gradients of one global batch, in micro-batches of `micro` samples.
  // `slice` gives samples [first, first + count) of the batch.
  template <typename Slice>
  double AccumulateInMicroBatches(int64_t total, int64_t micro, float loss_scale, Slice slice) {
    ClearGradients();
    double loss = 0;
    for (int64_t first = 0; first < total; first += micro) {
      loss += model_->ForwardBackward(slice(first, micro), loss_scale, 5, IgnoreReady);
    }
    return loss;
  }

  void ExpectEveryParameterIsReadyOnce(const Batch& batch) {
    std::vector<int> calls(parameters_.size(), 0);
    ClearGradients();
    model_->ForwardBackward(batch, 1.0f, 0, IgnoreReady);
    const auto want = gradients_;
    ClearGradients();
    model_->ForwardBackward(batch, 1.0f, 0, [&](int p) {
      ++calls[static_cast<size_t>(p)];
      EXPECT_EQ(gradients_[p], want[p]) << "not final: " << model_->parameters()[p].name;
    });
    EXPECT_EQ(calls, std::vector<int>(parameters_.size(), 1));
  }

 private:
  std::unique_ptr<Model> model_;
  std::vector<std::vector<float>> parameters_, gradients_;
};

inline double RelativeDifference(const std::vector<std::vector<float>>& a,
                                 const std::vector<std::vector<float>>& b) {
  double difference = 0, norm = 0;
  for (size_t p = 0; p < a.size(); ++p) {
    for (size_t i = 0; i < a[p].size(); ++i) {
      const double d = static_cast<double>(a[p][i]) - b[p][i];
      difference += d * d;
      norm += static_cast<double>(b[p][i]) * b[p][i];
    }
  }
  return std::sqrt(difference / norm);
}

}  // namespace trainctl

#endif  // TRAINCTL_TESTS_UNIT_TRAINER_MODEL_CASE_H_
