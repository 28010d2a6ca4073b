// What a replica on a GPU knows of a model: model.h with everything in the GPU's memory, and calls
// that enqueue and return. Losses stay there too.
#ifndef TRAINCTL_RUNTIME_TRAINER_GPU_GPU_MODEL_H_
#define TRAINCTL_RUNTIME_TRAINER_GPU_GPU_MODEL_H_

#include <cuda_runtime_api.h>

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/status.h"
#include "kernels/cuda/classifier.h"
#include "kernels/cuda/dtype.h"

namespace trainctl {

// As Batch, on the device.
struct GpuBatch {
  int64_t count = 0;
  const int32_t* tokens = nullptr;
  const int32_t* targets = nullptr;
  const int64_t* ids = nullptr;
};

// Where a model finds its parameters, in registration order; the memory is the caller's.
struct GpuBinding {
  std::vector<const void*> parameters;  // of the type the model computes in
  std::vector<void*> gradients;         // float32; padding and all are zero at the start of a step
  cuda::ClassifierTotals* totals = nullptr;
  const float* loss_scale = nullptr;  // multiplies gradients beside the call's; null: 1
};

// Not thread-safe; for one device and one stream.
class GpuModel {
 public:
  using GradientReady = std::function<absl::Status(int parameter)>;

  virtual ~GpuModel() = default;
  // By parameter, the padded size that its arrays must have; 0: no matter.
  virtual std::vector<int64_t> PaddedSizes() const = 0;
  // REQUIRED before any other call.
  virtual void Bind(GpuBinding binding) = 0;
  // Activations for batches of up to so many samples. RESOURCE_EXHAUSTED says what is missing.
  virtual absl::Status Reserve(int64_t samples) = 0;
  // As Model::ForwardBackward. Adds to gradients and totals. `ready` is called when what makes the
  // gradient final has been enqueued. REQUIRES: batch.count is reserved.
  virtual absl::Status ForwardBackward(const GpuBatch& batch, float loss_scale, uint64_t step,
                                       const GradientReady& ready, cudaStream_t stream) = 0;
  // Adds to totals. REQUIRES as above.
  virtual absl::Status Evaluate(const GpuBatch& batch, cudaStream_t stream) = 0;
};

}  // namespace trainctl

#endif  // TRAINCTL_RUNTIME_TRAINER_GPU_GPU_MODEL_H_
