#include "runtime/trainer/gpt.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/classifier.h"
#include "kernels/dropout.h"
#include "kernels/embedding.h"
#include "kernels/gelu.h"
#include "kernels/layer_norm.h"
#include "kernels/linear.h"
#include "runtime/base/check.h"
#include "runtime/trainer/random.h"

namespace trainctl {
namespace {

// Logits are computed, turned into their gradient and used up in blocks of about this many floats,
// so that they stay in the cache and a large vocabulary needs no large memory.
constexpr int64_t kLogitFloats = 1 << 16;
constexpr int64_t kLeastHeadRows = 64;

}  // namespace

Gpt::Gpt(const GptOptions& options) : options_(options) {
  const int64_t c = options.width;
  CHECK(options.layers > 0 && options.heads > 0 && options.context > 0 && options.vocabulary > 0);
  CHECK(c > 0 && c % options.heads == 0);
  AddParameter("token_embedding.weight", {options.vocabulary, c}, true);
  AddParameter("position_embedding.weight", {options.context, c}, true);
  for (int64_t l = 0; l < options.layers; ++l) {
    const std::string block = absl::StrCat("layers.", l, ".");
    const auto layer = [&](absl::string_view name, std::vector<int64_t> weight, bool decay) {
      const int64_t out = weight[0];
      AddParameter(absl::StrCat(block, name, ".weight"), std::move(weight), decay);
      AddParameter(absl::StrCat(block, name, ".bias"), {out}, false);
    };
    layer("norm1", {c}, false);
    layer("attention.qkv", {3 * c, c}, true);
    layer("attention.project", {c, c}, true);
    layer("norm2", {c}, false);
    layer("mlp.expand", {4 * c, c}, true);
    layer("mlp.contract", {c, 4 * c}, true);
  }
  AddParameter("norm.weight", {c}, false);
  AddParameter("norm.bias", {c}, false);
}

void Gpt::AddParameter(const std::string& name, std::vector<int64_t> shape, bool decay) {
  specs_.push_back({name, std::move(shape), decay});
}

ops::AttentionShape Gpt::Shape(int64_t samples) const {
  return {samples, options_.context, options_.heads, options_.width / options_.heads};
}

void Gpt::Bind(std::vector<float*> parameters, std::vector<float*> gradients) {
  CHECK(parameters.size() == specs_.size() && gradients.size() == specs_.size());
  parameters_ = std::move(parameters);
  gradients_ = std::move(gradients);
}

void Gpt::Initialize(uint64_t seed) {
  for (size_t p = 0; p < specs_.size(); ++p) {
    const bool is_norm_weight = specs_[p].shape.size() == 1 && specs_[p].name.ends_with(".weight");
    std::fill_n(parameters_[p], specs_[p].size(), is_norm_weight ? 1.0f : 0.0f);
  }
  const auto normal = [&](int p, double deviation) {
    const auto key = StreamKey(seed, RandomPurpose::kInitialize, static_cast<uint64_t>(p));
    FillNormal(key, 0, static_cast<float>(deviation), parameters_[p], specs_[p].size());
  };
  const double residual = 0.02 / std::sqrt(2 * static_cast<double>(options_.layers));
  normal(kToken, 0.02);
  normal(kPosition, 0.02);
  for (int l = 0; l < options_.layers; ++l) {
    normal(Of(l, kQkvWeight), 0.02);
    normal(Of(l, kProjectWeight), residual);
    normal(Of(l, kExpandWeight), 0.02);
    normal(Of(l, kContractWeight), residual);
  }
}

void Gpt::Reserve(int64_t samples) {
  if (samples <= reserved_) return;
  const int64_t rows = samples * options_.context, c = options_.width;
  head_rows_ = std::min(rows, std::max(kLeastHeadRows, kLogitFloats / options_.vocabulary));
  std::vector<int64_t> lengths;
  std::vector<float**> arrays;
  const auto add = [&](float*& array, int64_t length) {
    lengths.push_back(length);
    arrays.push_back(&array);
  };
  blocks_.resize(static_cast<size_t>(options_.layers));
  add(embedded_, rows * c);
  for (Block& b : blocks_) {
    for (float** row : {&b.mean1, &b.inverse1, &b.mean2, &b.inverse2}) add(*row, rows);
    add(b.log_sums, rows * options_.heads);
    for (float** narrow : {&b.norm1, &b.attention, &b.middle, &b.norm2, &b.out}) {
      add(*narrow, rows * c);
    }
    add(b.qkv, rows * 3 * c);
    add(b.expanded, rows * 4 * c);
    add(b.derivative, rows * 4 * c);
  }
  add(final_, rows * c);
  add(mean_, rows);
  add(inverse_, rows);
  add(logits_, head_rows_ * options_.vocabulary);
  for (float** narrow : {&residual_, &branch_, &delta_}) add(*narrow, rows * c);
  add(wide_, rows * 4 * c);
  add(scratch_, ops::AttentionScratch(Shape(samples)));
  const std::vector<float*> memory = workspace_.Allocate(lengths);
  for (size_t i = 0; i < arrays.size(); ++i) *arrays[i] = memory[i];
  reserved_ = samples;
}

void Gpt::Dropout(int place, const Batch& batch, uint64_t step, float* x) const {
  if (options_.dropout == 0) return;
  const auto key =
      StreamKey(options_.seed, RandomPurpose::kDropout, step, static_cast<uint32_t>(place));
  ops::Dropout(key, options_.dropout, batch.ids, x, batch.count, options_.context * options_.width);
}

void Gpt::ForwardBlock(int l, const Batch& batch, float* in, const uint64_t* step) {
  const int64_t rows = batch.count * options_.context, c = options_.width;
  Block& b = blocks_[l];
  // The addition of what the block below gave is fused with this norm, see Forward.
  ops::LinearBiasForward(b.norm1, Parameter(l, kQkvWeight), Parameter(l, kQkvBias), b.qkv, rows, c,
                         3 * c);
  ops::AttentionForward(Shape(batch.count), b.qkv, b.attention, b.log_sums, scratch_);
  ops::LinearBiasForward(b.attention, Parameter(l, kProjectWeight), Parameter(l, kProjectBias),
                         b.middle, rows, c, c);
  if (step != nullptr) Dropout(AttentionPlace(l), batch, *step, b.middle);
  ops::ResidualNormForward(in, Parameter(l, kNorm2Weight), Parameter(l, kNorm2Bias), b.middle,
                           b.norm2, b.mean2, b.inverse2, rows, c);
  ops::LinearForward(b.norm2, Parameter(l, kExpandWeight), b.derivative, rows, c, 4 * c);
  ops::BiasGeluForward(Parameter(l, kExpandBias), b.derivative, b.expanded, rows, 4 * c);
  ops::LinearBiasForward(b.expanded, Parameter(l, kContractWeight), Parameter(l, kContractBias),
                         b.out, rows, 4 * c, c);
  if (step != nullptr) Dropout(MlpPlace(l), batch, *step, b.out);
}

void Gpt::Forward(const Batch& batch, const uint64_t* step) {
  Reserve(batch.count);
  const int64_t rows = batch.count * options_.context, c = options_.width;
  ops::EmbeddingForward(batch.tokens, parameters_[kToken], parameters_[kPosition], embedded_,
                        batch.count, options_.context, c, options_.vocabulary);
  if (step != nullptr) Dropout(0, batch, *step, embedded_);
  // Each norm first adds the residual stream below (`below`) to what the last block gave (`x`).
  const float* below = nullptr;
  float* x = embedded_;
  for (int l = 0; l < options_.layers; ++l) {
    Block& b = blocks_[l];
    ops::ResidualNormForward(below, Parameter(l, kNorm1Weight), Parameter(l, kNorm1Bias), x,
                             b.norm1, b.mean1, b.inverse1, rows, c);
    ForwardBlock(l, batch, x, step);
    below = b.middle;
    x = b.out;
  }
  ops::ResidualNormForward(below, parameters_[norm_weight()], parameters_[norm_weight() + 1], x,
                           final_, mean_, inverse_, rows, c);
}

double Gpt::Head(const Batch& batch, float loss_scale) {
  const int64_t rows = batch.count * options_.context, c = options_.width;
  const int64_t vocabulary = options_.vocabulary;
  double loss = 0;
  for (int64_t r = 0; r < rows; r += head_rows_) {
    const int64_t n = std::min(head_rows_, rows - r);
    ops::LinearForward(final_ + r * c, parameters_[kToken], logits_, n, c, vocabulary);
    loss += ops::ClassifierForwardBackward(logits_, batch.targets + r, loss_scale, n, vocabulary);
    ops::LinearBackwardWeight(logits_, final_ + r * c, gradients_[kToken], n, c, vocabulary);
    ops::LinearBackwardInput(logits_, parameters_[kToken], delta_ + r * c, n, c, vocabulary);
  }
  return loss;
}

const float* Gpt::BranchGradient(int place, const Batch& batch, uint64_t step) {
  if (options_.dropout == 0) return residual_;
  const int64_t n = batch.count * options_.context * options_.width;
  std::memcpy(branch_, residual_, static_cast<size_t>(n) * sizeof(float));
  Dropout(place, batch, step, branch_);
  return branch_;
}

void Gpt::BackwardBlock(int l, const Batch& batch, const float* in, uint64_t step,
                        const GradientReady& ready) {
  const int64_t rows = batch.count * options_.context, c = options_.width;
  const Block& b = blocks_[l];
  const auto weight = [&](const float* dy, const float* x, int p, int64_t inputs, int64_t outputs) {
    ops::LinearBackwardWeight(dy, x, Gradient(l, p), rows, inputs, outputs);
    ready(Of(l, p));
  };
  const auto bias = [&](const float* dy, int p, int64_t outputs) {
    ops::BiasBackward(dy, Gradient(l, p), rows, outputs);
    ready(Of(l, p));
  };
  const auto norm = [&](const float* x, const float* mean, const float* inverse, int p) {
    ops::ResidualNormBackward(delta_, x, mean, inverse, Parameter(l, p), residual_, Gradient(l, p),
                              Gradient(l, p + 1), rows, c);
    ready(Of(l, p));
    ready(Of(l, p + 1));
  };

  const float* branch = BranchGradient(MlpPlace(l), batch, step);
  weight(branch, b.expanded, kContractWeight, 4 * c, c);
  bias(branch, kContractBias, c);
  ops::LinearBackwardInput(branch, Parameter(l, kContractWeight), wide_, rows, 4 * c, c);
  ops::BiasGeluBackward(b.derivative, wide_, Gradient(l, kExpandBias), rows, 4 * c);
  ready(Of(l, kExpandBias));
  weight(wide_, b.norm2, kExpandWeight, c, 4 * c);
  ops::LinearBackwardInput(wide_, Parameter(l, kExpandWeight), delta_, rows, c, 4 * c);
  norm(b.middle, b.mean2, b.inverse2, kNorm2Weight);

  branch = BranchGradient(AttentionPlace(l), batch, step);
  weight(branch, b.attention, kProjectWeight, c, c);
  bias(branch, kProjectBias, c);
  ops::LinearBackwardInput(branch, Parameter(l, kProjectWeight), delta_, rows, c, c);
  ops::AttentionBackward(Shape(batch.count), delta_, b.qkv, b.attention, b.log_sums, wide_,
                         scratch_);
  weight(wide_, b.norm1, kQkvWeight, c, 3 * c);
  bias(wide_, kQkvBias, 3 * c);
  ops::LinearBackwardInput(wide_, Parameter(l, kQkvWeight), delta_, rows, c, 3 * c);
  norm(in, b.mean1, b.inverse1, kNorm1Weight);
}

double Gpt::ForwardBackward(const Batch& batch, float loss_scale, uint64_t step,
                            const GradientReady& ready) {
  Forward(batch, &step);
  const double loss = Head(batch, loss_scale);
  const int64_t rows = batch.count * options_.context, c = options_.width;
  const int layers = static_cast<int>(options_.layers);
  std::fill_n(residual_, rows * c, 0.0f);
  ops::ResidualNormBackward(delta_, blocks_.back().out, mean_, inverse_, parameters_[norm_weight()],
                            residual_, gradients_[norm_weight()], gradients_[norm_weight() + 1],
                            rows, c);
  ready(norm_weight());
  ready(norm_weight() + 1);
  for (int l = layers - 1; l >= 0; --l) {
    BackwardBlock(l, batch, l == 0 ? embedded_ : blocks_[l - 1].out, step, ready);
  }
  Dropout(0, batch, step, residual_);
  ops::EmbeddingBackward(batch.tokens, residual_, gradients_[kToken], gradients_[kPosition],
                         batch.count, options_.context, c);
  ready(kPosition);
  ready(kToken);
  return loss;
}

EvaluateResult Gpt::Evaluate(const Batch& batch) {
  Forward(batch, nullptr);
  const int64_t rows = batch.count * options_.context, c = options_.width;
  EvaluateResult result;
  for (int64_t r = 0; r < rows; r += head_rows_) {
    const int64_t n = std::min(head_rows_, rows - r);
    ops::LinearForward(final_ + r * c, parameters_[kToken], logits_, n, c, options_.vocabulary);
    const auto part = ops::ClassifierEvaluate(logits_, batch.targets + r, n, options_.vocabulary);
    result.loss_sum += part.loss_sum;
    result.correct += part.correct;
  }
  result.count = rows;
  return result;
}

}  // namespace trainctl
