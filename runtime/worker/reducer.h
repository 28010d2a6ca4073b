// Sums gradients over all workers while backward still runs.
//
// The reducer owns the gradients: they are views into contiguous buckets, 64-byte aligned. Buckets
// are launched in strict order on a communication thread, as soon as all gradients of a bucket are
// ready. One step is
//
//   reducer->BeginStep(micro_batches);            // gradients are zero, views may have moved
//   if (reducer->layout() != bound) Bind(…gradient(p)…);
//   for each micro-batch {                        // backward ADDS to gradient(p)
//     … MarkReady(p) …;
//     reducer->FinishMicroBatch();
//   }
//   reducer->sums()[i] = …;                       // small values to be summed along, such as the
//   loss reducer->Wait();                              // gradient(p) and sums() now hold the
//   totals
//
// Buckets are launched only in the last micro-batch of a step. Ranks may have different numbers of
// micro-batches; one without samples calls BeginStep(0), then Wait, and takes part with zeros. The
// reducer only sums: whoever computes the gradients scales the loss by 1 / (samples of the step on
// all ranks). As each element is summed in rank order, results do not depend on the buckets.
//
// All methods are for the training thread. Between BeginStep and Wait nobody else may use the
// communicator. After an error every call returns it.
#ifndef TRAINCTL_RUNTIME_WORKER_REDUCER_H_
#define TRAINCTL_RUNTIME_WORKER_REDUCER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "runtime/worker/bucket_plan.h"
#include "runtime/worker/communicator.h"

namespace trainctl {

struct ReducerOptions {
  // A plan of an earlier run (checkpoint, --plan). Without one, all ranks measure the link once.
  // Every rank must give the same. INVALID_ARGUMENT if it is not for these parameters.
  std::optional<BucketPlan> plan;
  int sums = 0;  // size of sums()
  // Told the plan's reason on rank 0, once when it is final.
  std::function<void(absl::string_view)> note;
};

class Reducer {
 public:
  // `sizes`: number of elements by parameter, in registration order (= forward order). Collective.
  // `communicator` outlives the reducer.
  static absl::StatusOr<std::unique_ptr<Reducer>> Create(Communicator* communicator,
                                                         std::vector<int64_t> sizes,
                                                         ReducerOptions options);
  virtual ~Reducer() = default;

  // Views move only in BeginStep, and only once in a reducer's life: after the first step in which
  // rank 0 had samples, when buckets are made again from its ready order. layout() then rises.
  virtual float* gradient(int parameter) = 0;
  virtual int layout() const = 0;

  virtual absl::Status BeginStep(int micro_batches) = 0;
  // gradient(parameter) is complete for this micro-batch. A second mark in it has no effect.
  virtual void MarkReady(int parameter) = 0;
  virtual void FinishMicroBatch() = 0;
  // Float32, zero at BeginStep; summed in rank order like gradients.
  virtual absl::Span<float> sums() = 0;
  virtual absl::Status Wait() = 0;

  // After Wait: some rank marked it in this step. The optimizer must leave a parameter that is not
  // used, and its state, as they are.
  virtual bool used(int parameter) const = 0;
  // All parameters were used: the usual case, one look instead of many.
  virtual bool all_used() const = 0;

  // Of the newest layout; to be kept in the checkpoint by PlanToJson.
  virtual const BucketPlan& plan() const = 0;
};

}  // namespace trainctl

#endif  // TRAINCTL_RUNTIME_WORKER_REDUCER_H_
