// The model of gpt.h on a GPU, with the same parameters and the same random streams.
//
// Activations are planned once, for the largest batch, in one allocation. In 16-bit types the
// residual stream and all activations are of that type, sums inside an operation are float32, and
// gradients of parameters are float32.
#ifndef TRAINCTL_RUNTIME_TRAINER_GPU_GPU_GPT_H_
#define TRAINCTL_RUNTIME_TRAINER_GPU_GPU_GPT_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "kernels/attention.h"
#include "kernels/cuda/embedding.h"
#include "kernels/cuda/linear.h"
#include "runtime/device/memory.h"
#include "runtime/trainer/gpt.h"
#include "runtime/trainer/gpu/gpu_model.h"

namespace trainctl {

struct GpuGptOptions {
  GptOptions model;
  cuda::Dtype type = cuda::Dtype::kBfloat16;
  // Keep only each block's output for the backward pass, and compute the rest a second time.
  bool recompute = false;
};

class GpuGpt final : public GpuModel {
 public:
  // REQUIRES what Gpt does. `linear` outlives the model.
  GpuGpt(const GpuGptOptions& options, cuda::Linear* linear);

  std::vector<int64_t> PaddedSizes() const override;
  void Bind(GpuBinding binding) override;
  absl::Status Reserve(int64_t samples) override;
  absl::Status ForwardBackward(const GpuBatch& batch, float loss_scale, uint64_t step,
                               const GradientReady& ready, cudaStream_t stream) override;
  absl::Status Evaluate(const GpuBatch& batch, cudaStream_t stream) override;

 private:
  // As Gpt::Block. With recompute all blocks share everything but `out`.
  struct Block {
    void *norm1, *qkv, *attention, *middle, *norm2;
    void *before, *expanded;  // before GELU (16 bits) or its derivative (float32); after it
    void* out;
    float *mean1, *inverse1, *mean2, *inverse2, *log_sums;
  };
  struct Pass;  // what one call works on

  absl::Status Forward(const Pass& pass);
  absl::Status ForwardNorm1(const Pass& pass, int block, const void* below);
  absl::Status ForwardInner(const Pass& pass, int block);
  absl::Status ForwardContract(const Pass& pass, int block);
  absl::Status Head(const Pass& pass);
  absl::Status BackwardBlock(const Pass& pass, int block);
  absl::Status BackwardMlp(const Pass& pass, int block);
  absl::Status BackwardAttention(const Pass& pass, int block);
  // Of a layer y = x · wᵀ + b with its parameters at p and p + 1.
  absl::Status BackwardLayer(const Pass& pass, int p, const void* dy, const void* x, int64_t in,
                             int64_t out, bool with_bias);
  absl::Status BackwardNorm(const Pass& pass, int p, const void* x, const float* mean,
                            const float* inverse, bool first);
  absl::Status Dropout(const Pass& pass, int place, void* x);
  absl::StatusOr<const void*> BranchGradient(const Pass& pass, int place);

  ops::AttentionShape Shape(int64_t samples) const;
  cuda::EmbeddingShape Embedding(int64_t samples) const;
  bool fused_gelu() const { return options_.type != cuda::Dtype::kFloat32; }
  void* In(int block) const { return block == 0 ? embedded_ : blocks_[block - 1].out; }
  int64_t rows(int64_t samples) const { return samples * options_.model.context; }

  const GpuGptOptions options_;
  const int64_t width_, padded_vocabulary_;
  cuda::Linear* const linear_;
  GpuBinding binding_;

  DeviceMemory memory_;
  int64_t reserved_ = 0;   // samples
  int64_t head_rows_ = 0;  // rows of logits at a time
  std::vector<Block> blocks_;
  void *embedded_ = nullptr, *final_ = nullptr, *logits_ = nullptr;
  void *residual_ = nullptr, *branch_ = nullptr, *delta_ = nullptr, *wide_ = nullptr;
  float *mean_ = nullptr, *inverse_ = nullptr, *row_dots_ = nullptr, *losses_ = nullptr;
  int32_t* correct_ = nullptr;
  void* workspace_ = nullptr;
};

}  // namespace trainctl

#endif  // TRAINCTL_RUNTIME_TRAINER_GPU_GPU_GPT_H_
