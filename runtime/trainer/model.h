// What the training loop knows of a model. Implementations: mlp.h, gpt.h, by hand over kernels/.
#ifndef TRAINCTL_RUNTIME_TRAINER_MODEL_H_
#define TRAINCTL_RUNTIME_TRAINER_MODEL_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace trainctl {

struct ParameterSpec {
  std::string name;            // unique, as in a checkpoint: "layers.0.attention.qkv.weight"
  std::vector<int64_t> shape;  // row-major, float32
  bool decay = false;  // weight decay applies (matrices and embeddings; not biases, not norms)
  int64_t size() const {
    int64_t n = 1;
    for (int64_t d : shape) n *= d;
    return n;
  }
};

// One micro-batch. `ids` are the samples' numbers in the data set: together with seed and step they
// key every random stream, so that results do not depend on which worker computes a sample.
struct Batch {
  int64_t count = 0;                 // samples
  const float* features = nullptr;   // mlp: [count, inputs]
  const int32_t* tokens = nullptr;   // gpt: [count, context]
  const int32_t* targets = nullptr;  // mlp: [count]; gpt: [count, context]
  const int64_t* ids = nullptr;      // [count]
};

struct EvaluateResult {
  double loss_sum = 0;  // over samples (mlp) or tokens (gpt)
  int64_t correct = 0;  // top-1
  int64_t count = 0;    // samples or tokens
};

// Not thread-safe. Memory of parameters and gradients belongs to the caller and outlives the model.
class Model {
 public:
  using GradientReady = std::function<void(int parameter)>;

  virtual ~Model() = default;
  // In registration order, which is forward order.
  virtual const std::vector<ParameterSpec>& parameters() const = 0;
  // One pointer per parameter, in that order. REQUIRED before any other call.
  virtual void Bind(std::vector<float*> parameters, std::vector<float*> gradients) = 0;
  // Fills parameters from counter-based streams keyed by (seed, parameter).
  virtual void Initialize(uint64_t seed) = 0;
  // Forward and backward. ADDS loss_scale * d(sum of losses of the batch) to the gradients
  // (loss_scale = 1 / number of samples or tokens of the global batch), and calls `ready(p)` as
  // soon as parameter p's gradient is final for this call (any order, each once, on this thread).
  // Returns the sum of losses of the batch (not scaled). `step` keys dropout.
  virtual double ForwardBackward(const Batch& batch, float loss_scale, uint64_t step,
                                 const GradientReady& ready) = 0;
  virtual EvaluateResult Evaluate(const Batch& batch) = 0;  // no dropout
};

}  // namespace trainctl

#endif  // TRAINCTL_RUNTIME_TRAINER_MODEL_H_
