// The replica (replica.h) on one GPU: arenas of parameters, gradients and the optimizer's state, a
// model that computes in them, and one stream for everything.
#ifndef TRAINCTL_RUNTIME_TRAINER_GPU_GPU_REPLICA_H_
#define TRAINCTL_RUNTIME_TRAINER_GPU_GPU_REPLICA_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/cuda/adamw.h"
#include "kernels/cuda/gradient_norm.h"
#include "kernels/cuda/linear.h"
#include "kernels/cuda/sgd.h"
#include "kernels/cuda/update_plan.h"
#include "runtime/device/memory.h"
#include "runtime/device/stream.h"
#include "runtime/nccl/nccl_communicator.h"
#include "runtime/trainer/gpu/arena.h"
#include "runtime/trainer/gpu/gpu_model.h"
#include "runtime/trainer/gpu/gradient_exchange.h"
#include "runtime/trainer/model.h"
#include "runtime/trainer/optimizer.h"
#include "runtime/trainer/precision.h"
#include "runtime/trainer/replica.h"
#include "runtime/trainer/training_state.h"
#include "runtime/worker/session.h"

namespace trainctl {

struct GpuReplicaOptions {
  int device = 0;
  Precision precision = Precision::kBf16;  // not kAuto
  OptimizerOptions optimizer;
  double clip = 0;      // largest global norm of the gradients; 0: not clipped
  int64_t samples = 0;  // of the largest batch
  int64_t targets_per_sample = 1;
  int ranks = 1;
  Session* session = nullptr;  // where ranks > 1: to meet by
  std::string bucket_plan;     // see GradientExchange
};

// For one thread, on which the device is current.
class GpuReplica final : public Replica {
 public:
  using ModelMaker = std::function<std::unique_ptr<GpuModel>(cuda::Dtype, cuda::Linear*)>;

  // `specs` are the model's. NOT_FOUND, RESOURCE_EXHAUSTED and UNAVAILABLE say what is missing.
  static absl::StatusOr<std::unique_ptr<GpuReplica>> Create(const GpuReplicaOptions& options,
                                                            std::vector<ParameterSpec> specs,
                                                            const ModelMaker& make_model);

  absl::Status Upload(const std::vector<StateTensor>& state, const UpdateState& update) override;
  absl::Status Download(const std::vector<StateTensor>& state) override;
  absl::Status BeginStep(int micro_batches) override;
  absl::Status Accumulate(const Batch& batch, float scale, uint64_t step) override;
  absl::Status Update(double learning_rate, const StepRequests& requests) override;
  int results_waiting() const override { return static_cast<int>(enqueued_ - taken_); }
  absl::StatusOr<StepResult> TakeResult() override;
  absl::StatusOr<EvaluateResult> Evaluate(const Batch& batch) override;
  std::string bucket_plan() const override;

 private:
  static constexpr int kInFlight = 2;
  // What the device tells of a step.
  struct Told {
    double stops, checkpoints;  // ranks that ask for it; summed over ranks with the loss after them
    cuda::ClassifierTotals totals;
    cuda::UpdatePlan plan;
    cuda::LossScale loss_scale;
    cuda::UpdateCounts counts;
  };
  static constexpr size_t kSummed = 3;
  static_assert(offsetof(Told, totals) + offsetof(cuda::ClassifierTotals, loss_sum) ==
                (kSummed - 1) * sizeof(double));
  // What the kernels of a step share.
  struct Shared {
    Told told;
    double sum_of_squares;
    int32_t first_bad;
  };
  struct InFlight {
    PinnedMemory told, requests, batch;
    DeviceMemory device_batch;
    Event told_event, batch_event;
  };

  GpuReplica(const GpuReplicaOptions& options, std::vector<ParameterSpec> specs)
      : options_(options), specs_(std::move(specs)) {}
  absl::Status Allocate(const ModelMaker& make_model);
  absl::Status Connect();
  absl::Status Exchange(const StepRequests& requests);
  void ListTensors();
  absl::StatusOr<GpuBatch> Send(const Batch& batch);
  absl::Status RoundParameters();
  float* At(const StateTensor& tensor, size_t index) const;
  float* gradients() const { return gradients_.As<float>(); }
  Shared* shared() const { return shared_.As<Shared>(); }
  bool scales_loss() const { return options_.precision == Precision::kFp16; }
  cuda::Dtype type() const;
  int64_t moments() const {
    return options_.optimizer.kind == OptimizerOptions::Kind::kAdamW ? 2 : 1;
  }

  const GpuReplicaOptions options_;
  const std::vector<ParameterSpec> specs_;
  ArenaLayout layout_;
  Stream stream_;
  DeviceMemory workspace_, masters_, copies_, gradients_, moments_, shared_, norm_workspace_;
  std::unique_ptr<cuda::Linear> linear_;
  std::unique_ptr<GpuModel> model_;
  std::vector<cuda::GradientTensor> gradient_tensors_;
  std::vector<cuda::AdamWTensor> adamw_;
  std::vector<cuda::SgdTensor> sgd_;
  InFlight in_flight_[kInFlight];
  std::unique_ptr<NcclCommunicator> communicator_;  // null: one rank
  std::unique_ptr<GradientExchange> exchange_;
  int64_t batches_ = 0;               // sent
  int micro_batches_left_ = 0;        // of this step
  int64_t enqueued_ = 0, taken_ = 0;  // steps
};

}  // namespace trainctl

#endif  // TRAINCTL_RUNTIME_TRAINER_GPU_GPU_REPLICA_H_
