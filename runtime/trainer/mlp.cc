#include "runtime/trainer/mlp.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/classifier.h"
#include "kernels/dropout.h"
#include "kernels/linear.h"
#include "kernels/relu.h"
#include "runtime/base/check.h"
#include "runtime/trainer/random.h"

namespace trainctl {

Mlp::Mlp(const MlpOptions& options) : options_(options) {
  sizes_.push_back(options.inputs);
  sizes_.insert(sizes_.end(), options.hidden.begin(), options.hidden.end());
  sizes_.push_back(options.classes);
  for (int64_t size : sizes_) CHECK(size > 0);
  for (int l = 0; l < layers(); ++l) {
    specs_.push_back({absl::StrCat("layers.", l, ".weight"), {sizes_[l + 1], sizes_[l]}, true});
    specs_.push_back({absl::StrCat("layers.", l, ".bias"), {sizes_[l + 1]}, false});
  }
}

void Mlp::Bind(std::vector<float*> parameters, std::vector<float*> gradients) {
  CHECK(parameters.size() == specs_.size() && gradients.size() == specs_.size());
  parameters_ = std::move(parameters);
  gradients_ = std::move(gradients);
}

void Mlp::Initialize(uint64_t seed) {
  for (int l = 0; l < layers(); ++l) {
    const double gain = l + 1 < layers() ? 6.0 : 1.0;
    const float bound = static_cast<float>(std::sqrt(gain / static_cast<double>(sizes_[l])));
    const auto key = StreamKey(seed, RandomPurpose::kInitialize, static_cast<uint64_t>(2 * l));
    FillUniform(key, -bound, bound, parameters_[2 * l], specs_[2 * l].size());
    std::fill_n(parameters_[2 * l + 1], sizes_[l + 1], 0.0f);
  }
}

void Mlp::Reserve(int64_t samples) {
  if (samples <= reserved_) return;
  std::vector<int64_t> lengths;
  for (int l = 0; l < layers(); ++l) lengths.push_back(samples * sizes_[l + 1]);
  const int64_t widest = *std::max_element(sizes_.begin() + 1, sizes_.end());
  lengths.insert(lengths.end(), 2, samples * widest);
  outputs_ = workspace_.Allocate(lengths);
  delta_[1] = outputs_.back();
  outputs_.pop_back();
  delta_[0] = outputs_.back();
  outputs_.pop_back();
  reserved_ = samples;
}

void Mlp::Forward(const Batch& batch, const uint64_t* step) {
  Reserve(batch.count);
  const float* input = batch.features;
  for (int l = 0; l < layers(); ++l) {
    const float* weight = parameters_[2 * l];
    const float* bias = parameters_[2 * l + 1];
    float* output = outputs_[l];
    if (l + 1 == layers()) {
      ops::LinearBiasForward(input, weight, bias, output, batch.count, sizes_[l], sizes_[l + 1]);
      break;
    }
    ops::LinearForward(input, weight, output, batch.count, sizes_[l], sizes_[l + 1]);
    ops::BiasReluForward(bias, output, batch.count, sizes_[l + 1]);
    if (step != nullptr && options_.dropout > 0) {
      const auto key =
          StreamKey(options_.seed, RandomPurpose::kDropout, *step, static_cast<uint32_t>(l));
      ops::Dropout(key, options_.dropout, batch.ids, output, batch.count, sizes_[l + 1]);
    }
    input = output;
  }
}

double Mlp::ForwardBackward(const Batch& batch, float loss_scale, uint64_t step,
                            const GradientReady& ready) {
  Forward(batch, &step);
  const int64_t n = batch.count;
  const int last = layers() - 1;
  float* delta = outputs_[last];
  const double loss =
      ops::ClassifierForwardBackward(delta, batch.targets, loss_scale, n, options_.classes);
  ops::BiasBackward(delta, gradients_[2 * last + 1], n, options_.classes);
  ready(2 * last + 1);
  const float scale = static_cast<float>(1 / (1 - ops::DropoutProbability(options_.dropout)));
  for (int l = last; l >= 0; --l) {
    const float* input = l == 0 ? batch.features : outputs_[l - 1];
    ops::LinearBackwardWeight(delta, input, gradients_[2 * l], n, sizes_[l], sizes_[l + 1]);
    ready(2 * l);
    if (l == 0) break;
    float* below = delta_[l % 2];
    ops::LinearBackwardInput(delta, parameters_[2 * l], below, n, sizes_[l], sizes_[l + 1]);
    ops::BiasReluBackward(input, scale, below, gradients_[2 * l - 1], n, sizes_[l]);
    ready(2 * l - 1);
    delta = below;
  }
  return loss;
}

EvaluateResult Mlp::Evaluate(const Batch& batch) {
  Forward(batch, nullptr);
  const auto result =
      ops::ClassifierEvaluate(outputs_.back(), batch.targets, batch.count, options_.classes);
  return {result.loss_sum, result.correct, batch.count};
}

}  // namespace trainctl
