// Decoder-only transformer: token and position embedding, blocks of causal attention and a
// four times wider GELU layer, each after a layer norm and added to the residual stream, a last
// norm, and logits by the token embedding itself.
#ifndef TRAINCTL_RUNTIME_TRAINER_GPT_H_
#define TRAINCTL_RUNTIME_TRAINER_GPT_H_

#include <cstdint>
#include <vector>

#include "kernels/attention.h"
#include "kernels/philox.h"
#include "runtime/trainer/model.h"
#include "runtime/trainer/workspace.h"

namespace trainctl {

struct GptOptions {
  int64_t layers = 4;
  int64_t width = 128;
  int64_t heads = 4;  // divides width
  int64_t context = 128;
  int64_t vocabulary = 256;
  double dropout = 0;  // of the embedding and of what each block adds; in [0, 1)
  uint64_t seed = 0;   // keys dropout
};

class Gpt final : public Model {
 public:
  // Parameters of one block, in registration order after the two embeddings.
  enum BlockParameter {
    kNorm1Weight,
    kNorm1Bias,
    kQkvWeight,
    kQkvBias,
    kProjectWeight,
    kProjectBias,
    kNorm2Weight,
    kNorm2Bias,
    kExpandWeight,
    kExpandBias,
    kContractWeight,
    kContractBias,
    kBlockParameters
  };
  static constexpr int kToken = 0, kPosition = 1;
  // The number of a parameter; that of the last norm's weight is Of(layers, 0).
  static constexpr int Of(int block, int parameter) {
    return 2 + block * kBlockParameters + parameter;
  }
  // Places of dropout: 0 is the embedding.
  static constexpr int AttentionPlace(int block) { return 1 + 2 * block; }
  static constexpr int MlpPlace(int block) { return 2 + 2 * block; }

  // REQUIRES positive sizes, and heads to divide width.
  explicit Gpt(const GptOptions& options);

  const std::vector<ParameterSpec>& parameters() const override { return specs_; }
  void Bind(std::vector<float*> parameters, std::vector<float*> gradients) override;
  // Matrices and embeddings are normal with deviation 0.02, divided by sqrt(2 layers) where a
  // matrix writes to the residual stream; norms are the identity, biases zero.
  void Initialize(uint64_t seed) override;
  double ForwardBackward(const Batch& batch, float loss_scale, uint64_t step,
                         const GradientReady& ready) override;
  EvaluateResult Evaluate(const Batch& batch) override;

 private:
  // Activations of one block that the backward pass needs; R is samples * context, C the width.
  struct Block {
    float *norm1, *mean1, *inverse1;    // [R, C], [R], [R]
    float *qkv, *attention, *log_sums;  // [R, 3 C], [R, C], [samples, heads, context]
    float* middle;                      // [R, C]: the residual stream after attention
    float *norm2, *mean2, *inverse2;
    float *expanded, *derivative;  // [R, 4 C]: after GELU; its derivative
    float* out;                    // [R, C]: the residual stream after the block
  };

  int norm_weight() const { return Of(static_cast<int>(options_.layers), 0); }
  float* Parameter(int block, int p) const { return parameters_[Of(block, p)]; }
  float* Gradient(int block, int p) const { return gradients_[Of(block, p)]; }
  ops::AttentionShape Shape(int64_t samples) const;

  void AddParameter(const std::string& name, std::vector<int64_t> shape, bool decay);
  void Reserve(int64_t samples);
  // `step` is null: no dropout. Leaves the input of the last layer in final_.
  void Forward(const Batch& batch, const uint64_t* step);
  void ForwardBlock(int block, const Batch& batch, float* in, const uint64_t* step);
  // The loss, and in delta_ the gradient of final_.
  double Head(const Batch& batch, float loss_scale);
  void BackwardBlock(int block, const Batch& batch, const float* in, uint64_t step,
                     const GradientReady& ready);
  // The gradient of what a block adds: residual_ itself, or a copy after the mask of dropout.
  const float* BranchGradient(int place, const Batch& batch, uint64_t step);
  void Dropout(int place, const Batch& batch, uint64_t step, float* x) const;

  const GptOptions options_;
  std::vector<ParameterSpec> specs_;
  std::vector<float*> parameters_, gradients_;

  Workspace workspace_;
  int64_t reserved_ = 0;   // samples
  int64_t head_rows_ = 0;  // rows of logits at a time
  std::vector<Block> blocks_;
  float* embedded_ = nullptr;                                         // [R, C]
  float *final_ = nullptr, *mean_ = nullptr, *inverse_ = nullptr;     // the last norm
  float* logits_ = nullptr;                                           // [head_rows_, vocabulary]
  float *residual_ = nullptr, *branch_ = nullptr, *delta_ = nullptr;  // gradients [R, C]
  float* wide_ = nullptr;                                             // gradients [R, 4 C]
  float* scratch_ = nullptr;
};

}  // namespace trainctl

#endif  // TRAINCTL_RUNTIME_TRAINER_GPT_H_
