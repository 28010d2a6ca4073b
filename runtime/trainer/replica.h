// A model with its gradients and its optimizer on a device of its own: what the training loop has
// in the place of Model, gradients and Optimizer when it trains on a GPU (gpu/gpu_replica.h).
//
// One step is
//
//   replica->BeginStep(micro_batches);
//   for each micro-batch: replica->Accumulate(batch, scale, step);
//   replica->Update(learning_rate, requests);
//   … replica->TakeResult() …;   // of this step, or of an earlier one
//
// Nothing but TakeResult waits for the device: up to two steps may be on their way, and whoever
// takes results one step late keeps the device busy. The tensors of a checkpoint are the caller's,
// in the CPU's memory, named and shaped as those of a run on CPUs: Upload and Download copy them.
#ifndef TRAINCTL_RUNTIME_TRAINER_REPLICA_H_
#define TRAINCTL_RUNTIME_TRAINER_REPLICA_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/trainer/config.h"
#include "runtime/trainer/device_choice.h"
#include "runtime/trainer/model.h"
#include "runtime/trainer/training_state.h"
#include "runtime/worker/session.h"

namespace trainctl {

// What a rank wants of all.
struct StepRequests {
  bool stop = false;
  bool checkpoint = false;
};

// The same on all ranks.
struct StepResult {
  double loss_sum = 0;    // over all ranks
  StepRequests requests;  // of any rank
  double norm = 0;        // of the gradients, before clipping
  int bad_tensor = -1;    // the step was skipped: the first parameter whose gradient was not finite
  UpdateState update;     // after it
  int skipped_at_floor = 0;  // steps in a row that the smallest loss scale did not save
};

// For one thread.
class Replica {
 public:
  virtual ~Replica() = default;
  // Every tensor: parameters in order, then those of Optimizer::state(). A loss scale of 0 is a
  // float16 run's first.
  virtual absl::Status Upload(const std::vector<StateTensor>& state, const UpdateState& update) = 0;
  // Waits for all that was enqueued.
  virtual absl::Status Download(const std::vector<StateTensor>& state) = 0;

  // `micro_batches`: of this rank, which may be 0 where there are others.
  virtual absl::Status BeginStep(int micro_batches) = 0;
  // As Model::ForwardBackward. `batch` may be reused at once. REQUIRES: no more samples than
  // announced.
  virtual absl::Status Accumulate(const Batch& batch, float scale, uint64_t step) = 0;
  // The sum over all ranks, norm, clipping and the optimizer's update, which a gradient that is not
  // finite skips. REQUIRES: fewer than two results wait.
  virtual absl::Status Update(double learning_rate, const StepRequests& requests) = 0;
  virtual int results_waiting() const = 0;
  // Of the oldest step whose result was not taken; waits for it. REQUIRES results_waiting() > 0.
  virtual absl::StatusOr<StepResult> TakeResult() = 0;

  // Any number of samples. Waits for the result. REQUIRES: no results wait.
  virtual absl::StatusOr<EvaluateResult> Evaluate(const Batch& batch) = 0;
  // How gradients travel, as JSON; empty: there is one rank. To be kept in a checkpoint.
  virtual std::string bucket_plan() const = 0;
};

// The GPU of a worker, and the replica on it. In a build without CUDA there is none.
FoundGpu LookForGpu(int local_rank);
struct ReplicaRequest {
  FoundGpu gpu;
  Precision precision = Precision::kFp32;
  int64_t samples = 0;  // of the largest batch
  int ranks = 1;
  std::string bucket_plan;     // of an earlier run of so many ranks; empty: none
  Session* session = nullptr;  // outlives the replica
};
// Collective where there are several ranks: they connect by NCCL. RESOURCE_EXHAUSTED: of the GPU's
// memory, not of a disk, as the payload kGpuMemory tells.
constexpr char kGpuMemory[] = "trainctl/gpu_memory";
absl::StatusOr<std::unique_ptr<Replica>> MakeReplica(const TrainConfig& config,
                                                     const OpenedData& data,
                                                     const std::vector<ParameterSpec>& specs,
                                                     const ReplicaRequest& request);

}  // namespace trainctl

#endif  // TRAINCTL_RUNTIME_TRAINER_REPLICA_H_
