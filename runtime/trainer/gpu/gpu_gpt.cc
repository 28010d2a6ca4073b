#include "runtime/trainer/gpu/gpu_gpt.h"

#include <algorithm>
#include <utility>

#include "kernels/cuda/attention.h"
#include "kernels/cuda/bias.h"
#include "kernels/cuda/dropout.h"
#include "kernels/cuda/gelu.h"
#include "kernels/cuda/layer_norm.h"
#include "runtime/base/check.h"
#include "runtime/base/status.h"
#include "runtime/trainer/random.h"

namespace trainctl {
namespace {

// Logits, which become their gradients in place, are computed for as many rows at a time as fit
// here.
constexpr int64_t kLogitBytes = int64_t{4} << 30;
// The vocabulary is padded to whole tiles of the matrix products.
constexpr int64_t kVocabularyMultiple = 64;
constexpr int64_t kMemoryAlignment = 256;

}  // namespace

struct GpuGpt::Pass {
  const GpuBatch& batch;
  int64_t rows;
  const uint64_t* step;  // null: no dropout
  float loss_scale;
  const GradientReady* ready;
  cudaStream_t stream;
};

GpuGpt::GpuGpt(const GpuGptOptions& options, cuda::Linear* linear)
    : options_(options),
      width_(options.model.width),
      padded_vocabulary_((options.model.vocabulary + kVocabularyMultiple - 1) /
                         kVocabularyMultiple * kVocabularyMultiple),
      linear_(linear) {}

std::vector<int64_t> GpuGpt::PaddedSizes() const {
  std::vector<int64_t> sizes(
      static_cast<size_t>(Gpt::Of(static_cast<int>(options_.model.layers), 0)) + 2, 0);
  sizes[Gpt::kToken] = padded_vocabulary_ * width_;
  return sizes;
}

void GpuGpt::Bind(GpuBinding binding) { binding_ = std::move(binding); }

ops::AttentionShape GpuGpt::Shape(int64_t samples) const {
  return {samples, options_.model.context, options_.model.heads, width_ / options_.model.heads};
}

cuda::EmbeddingShape GpuGpt::Embedding(int64_t samples) const {
  return {samples, options_.model.context, width_, options_.model.vocabulary};
}

absl::Status GpuGpt::Reserve(int64_t samples) {
  if (samples <= reserved_) return absl::OkStatus();
  const int64_t r = rows(samples), c = width_, element = cuda::Bytes(options_.type);
  head_rows_ = std::clamp(kLogitBytes / (padded_vocabulary_ * element), int64_t{1}, r);
  int64_t total = 0;
  std::vector<std::pair<void**, int64_t>> places;
  const auto bytes = [&](void* array, int64_t n) {
    places.emplace_back(static_cast<void**>(array), total);
    total += (n + kMemoryAlignment - 1) / kMemoryAlignment * kMemoryAlignment;
  };
  const auto typed = [&](void** array, int64_t n) { bytes(array, n * element); };
  const auto floats = [&](float** array, int64_t n) { bytes(array, n * 4); };
  const auto inner = [&](Block& b) {
    for (float** row : {&b.mean1, &b.inverse1, &b.mean2, &b.inverse2}) floats(row, r);
    floats(&b.log_sums, r * options_.model.heads);
    for (void** narrow : {&b.norm1, &b.attention, &b.middle, &b.norm2}) typed(narrow, r * c);
    typed(&b.qkv, r * 3 * c);
    typed(&b.before, r * 4 * c);
    typed(&b.expanded, r * 4 * c);
  };
  blocks_.resize(static_cast<size_t>(options_.model.layers));
  typed(&embedded_, r * c);
  for (Block& b : blocks_) {
    if (!options_.recompute || &b == &blocks_.front()) inner(b);
    typed(&b.out, r * c);
  }
  for (void** narrow : {&final_, &residual_, &delta_}) typed(narrow, r * c);
  typed(&branch_, options_.model.dropout > 0 ? r * c : 0);
  typed(&wide_, r * 4 * c);
  typed(&logits_, head_rows_ * padded_vocabulary_);
  for (float** row : {&mean_, &inverse_, &losses_}) floats(row, r);
  floats(&row_dots_, r * options_.model.heads);
  bytes(&correct_, r * 4);
  bytes(&workspace_, std::max({cuda::BiasWorkspace(r, 4 * c), cuda::BiasWorkspace(r, 3 * c),
                               cuda::BiasWorkspace(r, c), cuda::ResidualNormWorkspace(r, c),
                               cuda::EmbeddingWorkspace(Embedding(samples))}));
  memory_ = DeviceMemory();  // before the larger one
  reserved_ = 0;
  ASSIGN_OR_RETURN(memory_, DeviceMemory::Allocate("activations", static_cast<size_t>(total)));
  for (const auto& [array, offset] : places) *array = memory_.As<char>() + offset;
  for (Block& b : blocks_) {
    if (!options_.recompute) break;
    void* const out = std::exchange(b.out, nullptr);
    if (&b != &blocks_.front()) b = blocks_.front();
    b.out = out;
  }
  reserved_ = samples;
  return absl::OkStatus();
}

absl::Status GpuGpt::Dropout(const Pass& pass, int place, void* x) {
  if (options_.model.dropout == 0 || pass.step == nullptr) return absl::OkStatus();
  const auto key = StreamKey(options_.model.seed, RandomPurpose::kDropout, *pass.step,
                             static_cast<uint32_t>(place));
  return cuda::Dropout(options_.type, key, options_.model.dropout, pass.batch.ids, x,
                       pass.batch.count, options_.model.context * width_, pass.stream);
}

// ---- forward ----

absl::Status GpuGpt::ForwardNorm1(const Pass& pass, int l, const void* below) {
  const int p = Gpt::Of(l, Gpt::kNorm1Weight);
  Block& b = blocks_[l];
  return cuda::ResidualNormForward(options_.type, In(l), below, binding_.parameters[p],
                                   binding_.parameters[p + 1], In(l), b.norm1, b.mean1, b.inverse1,
                                   pass.rows, width_, pass.stream);
}

// From norm1 to `expanded`.
absl::Status GpuGpt::ForwardInner(const Pass& pass, int l) {
  const int64_t r = pass.rows, c = width_;
  const cuda::Dtype type = options_.type;
  Block& b = blocks_[l];
  const auto parameter = [&](int p) { return binding_.parameters[Gpt::Of(l, p)]; };
  RETURN_IF_ERROR(linear_->Forward(type, {r, c, 3 * c}, b.norm1, parameter(Gpt::kQkvWeight),
                                   parameter(Gpt::kQkvBias), b.qkv, pass.stream));
  RETURN_IF_ERROR(cuda::AttentionForward(type, Shape(pass.batch.count), b.qkv, b.attention,
                                         b.log_sums, pass.stream));
  RETURN_IF_ERROR(linear_->Forward(type, {r, c, c}, b.attention, parameter(Gpt::kProjectWeight),
                                   parameter(Gpt::kProjectBias), b.middle, pass.stream));
  RETURN_IF_ERROR(Dropout(pass, Gpt::AttentionPlace(l), b.middle));
  RETURN_IF_ERROR(cuda::ResidualNormForward(type, b.middle, In(l), parameter(Gpt::kNorm2Weight),
                                            parameter(Gpt::kNorm2Bias), b.middle, b.norm2, b.mean2,
                                            b.inverse2, r, c, pass.stream));
  const void* weight = parameter(Gpt::kExpandWeight);
  const void* bias = parameter(Gpt::kExpandBias);
  if (fused_gelu()) {
    return linear_->GeluForward(type, {r, c, 4 * c}, b.norm2, weight, bias, b.before, b.expanded,
                                pass.stream);
  }
  RETURN_IF_ERROR(
      linear_->Forward(type, {r, c, 4 * c}, b.norm2, weight, nullptr, b.before, pass.stream));
  return cuda::BiasGeluForward(type, bias, b.before, b.expanded, r, 4 * c, pass.stream);
}

absl::Status GpuGpt::ForwardContract(const Pass& pass, int l) {
  const int p = Gpt::Of(l, Gpt::kContractWeight);
  Block& b = blocks_[l];
  RETURN_IF_ERROR(linear_->Forward(options_.type, {pass.rows, 4 * width_, width_}, b.expanded,
                                   binding_.parameters[p], binding_.parameters[p + 1], b.out,
                                   pass.stream));
  return Dropout(pass, Gpt::MlpPlace(l), b.out);
}

absl::Status GpuGpt::Forward(const Pass& pass) {
  CHECK(pass.batch.count <= reserved_);
  const int layers = static_cast<int>(options_.model.layers);
  RETURN_IF_ERROR(cuda::EmbeddingForward(
      options_.type, pass.batch.tokens, binding_.parameters[Gpt::kToken],
      binding_.parameters[Gpt::kPosition], embedded_, Embedding(pass.batch.count), pass.stream));
  RETURN_IF_ERROR(Dropout(pass, 0, embedded_));
  // Each norm first adds the residual stream below to what the last block gave.
  for (int l = 0; l < layers; ++l) {
    RETURN_IF_ERROR(ForwardNorm1(pass, l, l == 0 ? nullptr : blocks_[l - 1].middle));
    RETURN_IF_ERROR(ForwardInner(pass, l));
    RETURN_IF_ERROR(ForwardContract(pass, l));
  }
  const int norm = Gpt::Of(layers, 0);
  return cuda::ResidualNormForward(options_.type, In(layers), blocks_[layers - 1].middle,
                                   binding_.parameters[norm], binding_.parameters[norm + 1],
                                   In(layers), final_, mean_, inverse_, pass.rows, width_,
                                   pass.stream);
}

// ---- backward ----

// The losses, and in delta_ the gradient of final_.
absl::Status GpuGpt::Head(const Pass& pass) {
  const int64_t c = width_, element = cuda::Bytes(options_.type);
  const void* token = binding_.parameters[Gpt::kToken];
  for (int64_t r = 0; r < pass.rows; r += head_rows_) {
    const int64_t n = std::min(head_rows_, pass.rows - r);
    const cuda::LinearShape shape = {n, c, padded_vocabulary_};
    const void* x = static_cast<char*>(final_) + r * c * element;
    void* dx = static_cast<char*>(delta_) + r * c * element;
    RETURN_IF_ERROR(
        linear_->Forward(options_.type, shape, x, token, nullptr, logits_, pass.stream));
    RETURN_IF_ERROR(cuda::ClassifierForwardBackward(
        options_.type, logits_, pass.batch.targets + r, pass.loss_scale, binding_.loss_scale,
        losses_ + r, {n, options_.model.vocabulary, padded_vocabulary_}, pass.stream));
    RETURN_IF_ERROR(linear_->BackwardWeight(options_.type, shape, logits_, x, cuda::Dtype::kFloat32,
                                            binding_.gradients[Gpt::kToken], true, pass.stream));
    RETURN_IF_ERROR(linear_->BackwardInput(options_.type, shape, logits_, token, dx, pass.stream));
  }
  return cuda::AddTotals(losses_, nullptr, pass.rows, binding_.totals, pass.stream);
}

absl::StatusOr<const void*> GpuGpt::BranchGradient(const Pass& pass, int place) {
  if (options_.model.dropout == 0) return residual_;
  const int64_t n = pass.rows * width_;
  RETURN_IF_ERROR(Copy("a gradient", branch_, residual_,
                       static_cast<size_t>(n * cuda::Bytes(options_.type)), pass.stream));
  RETURN_IF_ERROR(Dropout(pass, place, branch_));
  return branch_;
}

absl::Status GpuGpt::BackwardLayer(const Pass& pass, int p, const void* dy, const void* x,
                                   int64_t in, int64_t out, bool with_bias) {
  RETURN_IF_ERROR(linear_->BackwardWeight(options_.type, {pass.rows, in, out}, dy, x,
                                          cuda::Dtype::kFloat32, binding_.gradients[p], true,
                                          pass.stream));
  RETURN_IF_ERROR((*pass.ready)(p));
  if (!with_bias) return absl::OkStatus();
  RETURN_IF_ERROR(cuda::BiasBackward(options_.type, dy, cuda::Dtype::kFloat32,
                                     binding_.gradients[p + 1], workspace_, pass.rows, out,
                                     pass.stream));
  return (*pass.ready)(p + 1);
}

// Of delta_, into residual_.
absl::Status GpuGpt::BackwardNorm(const Pass& pass, int p, const void* x, const float* mean,
                                  const float* inverse, bool first) {
  RETURN_IF_ERROR(cuda::ResidualNormBackward(
      options_.type, delta_, x, mean, inverse, binding_.parameters[p], first, residual_,
      cuda::Dtype::kFloat32, binding_.gradients[p], binding_.gradients[p + 1], workspace_,
      pass.rows, width_, pass.stream));
  RETURN_IF_ERROR((*pass.ready)(p));
  return (*pass.ready)(p + 1);
}

absl::Status GpuGpt::BackwardMlp(const Pass& pass, int l) {
  const int64_t r = pass.rows, c = width_;
  const cuda::Dtype type = options_.type;
  const Block& b = blocks_[l];
  const int contract = Gpt::Of(l, Gpt::kContractWeight);
  const int expand = Gpt::Of(l, Gpt::kExpandWeight);
  ASSIGN_OR_RETURN(const void* branch, BranchGradient(pass, Gpt::MlpPlace(l)));
  RETURN_IF_ERROR(BackwardLayer(pass, contract, branch, b.expanded, 4 * c, c, true));
  if (fused_gelu()) {
    RETURN_IF_ERROR(linear_->GeluBackwardInput(
        type, {r, 4 * c, c}, branch, binding_.parameters[contract], b.before, wide_, pass.stream));
  } else {
    RETURN_IF_ERROR(linear_->BackwardInput(type, {r, 4 * c, c}, branch,
                                           binding_.parameters[contract], wide_, pass.stream));
    RETURN_IF_ERROR(cuda::BiasGeluBackward(type, b.before, wide_, cuda::Dtype::kFloat32,
                                           binding_.gradients[expand + 1], workspace_, r, 4 * c,
                                           pass.stream));
    RETURN_IF_ERROR((*pass.ready)(expand + 1));
  }
  RETURN_IF_ERROR(BackwardLayer(pass, expand, wide_, b.norm2, c, 4 * c, fused_gelu()));
  RETURN_IF_ERROR(linear_->BackwardInput(type, {r, c, 4 * c}, wide_, binding_.parameters[expand],
                                         delta_, pass.stream));
  return BackwardNorm(pass, Gpt::Of(l, Gpt::kNorm2Weight), b.middle, b.mean2, b.inverse2, false);
}

absl::Status GpuGpt::BackwardAttention(const Pass& pass, int l) {
  const int64_t r = pass.rows, c = width_;
  const cuda::Dtype type = options_.type;
  const Block& b = blocks_[l];
  const int project = Gpt::Of(l, Gpt::kProjectWeight);
  const int qkv = Gpt::Of(l, Gpt::kQkvWeight);
  ASSIGN_OR_RETURN(const void* branch, BranchGradient(pass, Gpt::AttentionPlace(l)));
  RETURN_IF_ERROR(BackwardLayer(pass, project, branch, b.attention, c, c, true));
  RETURN_IF_ERROR(linear_->BackwardInput(type, {r, c, c}, branch, binding_.parameters[project],
                                         delta_, pass.stream));
  RETURN_IF_ERROR(cuda::AttentionBackward(type, Shape(pass.batch.count), delta_, b.qkv, b.attention,
                                          b.log_sums, wide_, row_dots_, pass.stream));
  RETURN_IF_ERROR(BackwardLayer(pass, qkv, wide_, b.norm1, c, 3 * c, true));
  RETURN_IF_ERROR(linear_->BackwardInput(type, {r, c, 3 * c}, wide_, binding_.parameters[qkv],
                                         delta_, pass.stream));
  return BackwardNorm(pass, Gpt::Of(l, Gpt::kNorm1Weight), In(l), b.mean1, b.inverse1, false);
}

absl::Status GpuGpt::BackwardBlock(const Pass& pass, int l) {
  if (options_.recompute) {
    RETURN_IF_ERROR(ForwardNorm1(pass, l, nullptr));
    RETURN_IF_ERROR(ForwardInner(pass, l));
  }
  RETURN_IF_ERROR(BackwardMlp(pass, l));
  return BackwardAttention(pass, l);
}

absl::Status GpuGpt::ForwardBackward(const GpuBatch& batch, float loss_scale, uint64_t step,
                                     const GradientReady& ready, cudaStream_t stream) {
  if (batch.count == 0) return absl::OkStatus();
  const Pass pass = {batch, rows(batch.count), &step, loss_scale, &ready, stream};
  const int layers = static_cast<int>(options_.model.layers);
  RETURN_IF_ERROR(Forward(pass));
  RETURN_IF_ERROR(Head(pass));
  RETURN_IF_ERROR(BackwardNorm(pass, Gpt::Of(layers, 0), In(layers), mean_, inverse_, true));
  for (int l = layers - 1; l >= 0; --l) RETURN_IF_ERROR(BackwardBlock(pass, l));
  RETURN_IF_ERROR(Dropout(pass, 0, residual_));
  RETURN_IF_ERROR(cuda::EmbeddingBackward(options_.type, batch.tokens, residual_,
                                          cuda::Dtype::kFloat32, binding_.gradients[Gpt::kToken],
                                          binding_.gradients[Gpt::kPosition], workspace_,
                                          Embedding(batch.count), stream));
  RETURN_IF_ERROR(ready(Gpt::kPosition));
  return ready(Gpt::kToken);
}

absl::Status GpuGpt::Evaluate(const GpuBatch& batch, cudaStream_t stream) {
  if (batch.count == 0) return absl::OkStatus();
  const Pass pass = {batch, rows(batch.count), nullptr, 1, nullptr, stream};
  RETURN_IF_ERROR(Forward(pass));
  const int64_t element = cuda::Bytes(options_.type);
  for (int64_t r = 0; r < pass.rows; r += head_rows_) {
    const int64_t n = std::min(head_rows_, pass.rows - r);
    RETURN_IF_ERROR(linear_->Forward(options_.type, {n, width_, padded_vocabulary_},
                                     static_cast<char*>(final_) + r * width_ * element,
                                     binding_.parameters[Gpt::kToken], nullptr, logits_, stream));
    RETURN_IF_ERROR(cuda::ClassifierEvaluate(
        options_.type, logits_, batch.targets + r, losses_ + r, correct_ + r,
        {n, options_.model.vocabulary, padded_vocabulary_}, stream));
  }
  return cuda::AddTotals(losses_, correct_, pass.rows, binding_.totals, stream);
}

}  // namespace trainctl
