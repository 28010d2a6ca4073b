// Sums gradients over the GPUs of all ranks while backward still runs: buckets of the gradients'
// arena go to NCCL on a stream of their own, each as soon as the kernels that complete it have been
// enqueued. Nothing here waits for the GPU but Await.
#ifndef TRAINCTL_RUNTIME_TRAINER_GPU_GRADIENT_EXCHANGE_H_
#define TRAINCTL_RUNTIME_TRAINER_GPU_GRADIENT_EXCHANGE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/device/stream.h"
#include "runtime/nccl/nccl_communicator.h"
#include "runtime/trainer/gpu/arena.h"
#include "runtime/worker/bucket_plan.h"

namespace trainctl {

class GradientExchange {
 public:
  // Collective. With `plan`, the JSON of a plan for these parameters, buckets are as it says;
  // without (empty) the link is measured by sums over `gradients`, which hold zeros. `communicator`
  // and the memory outlive it. INVALID_ARGUMENT: a plan whose buckets are not contiguous in the
  // arena.
  static absl::StatusOr<std::unique_ptr<GradientExchange>> Create(NcclCommunicator* communicator,
                                                                  ArenaLayout layout,
                                                                  float* gradients,
                                                                  const std::string& plan);

  // Collective from here on. A rank may have no micro-batch at all.
  void BeginStep() { next_ = 0; }
  void BeginMicroBatch(bool last);
  // In the last micro-batch: what completes this gradient has been enqueued on `stream`.
  absl::Status MarkReady(int parameter, const Stream& stream);
  // Sends what was not sent yet, and sums values[count]; `stream` then waits for all of it.
  absl::Status Finish(double* values, size_t count, const Stream& stream);
  // Waits until the step's sums are there; an error if a peer is lost.
  absl::Status Await() { return communicator_->Await(stream_.get()); }

  const BucketPlan& plan() const { return plan_; }

 private:
  struct Bucket {
    int64_t begin = 0, end = 0;  // elements of the arena
    int parameters = 0;
    int missing = 0;  // parameters that are not ready in this micro-batch
    Event ready;
  };

  GradientExchange(NcclCommunicator* communicator, ArenaLayout layout, float* gradients)
      : communicator_(communicator), layout_(std::move(layout)), gradients_(gradients) {}
  absl::StatusOr<LinkMeasurement> MeasureLink();
  absl::StatusOr<BucketPlan> MakePlan();
  absl::Status MakeBuckets();
  absl::Status SendNext(const Stream& stream);

  NcclCommunicator* const communicator_;
  const ArenaLayout layout_;
  float* const gradients_;
  Stream stream_;
  Event sent_;
  BucketPlan plan_;
  std::vector<Bucket> buckets_;  // in the order of launch
  std::vector<int> bucket_of_;   // by parameter
  size_t next_ = 0;              // the first that was not sent in this step
  bool last_ = false;            // the micro-batch is the step's last
};

}  // namespace trainctl

#endif  // TRAINCTL_RUNTIME_TRAINER_GPU_GRADIENT_EXCHANGE_H_
