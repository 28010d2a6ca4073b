// Collectives between the workers of one epoch. Implementations: gloo_communicator (CPU) and
// runtime/nccl/nccl_communicator (GPU), where all pointers are to memory of this rank's GPU.
//
// Every rank gets the same bits of a sum. The order in which its terms are added is the
// implementation's. Gloo's is that of ranks (((r0 + r1) + r2) + …), so that a result depends
// neither on message sizes nor on timing; NCCL's depends on the message's size and on the machine,
// so that equal results need equal messages (a bucket plan that is kept).
//
// Methods are collective: every rank calls the same ones in the same order, from one thread at a
// time. Abort may be called from any thread and wakes a blocked call at once with ABORTED.
// After any error the communicator only answers that error.
#ifndef TRAINCTL_RUNTIME_WORKER_COMMUNICATOR_H_
#define TRAINCTL_RUNTIME_WORKER_COMMUNICATOR_H_

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace trainctl {

class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;

  // In place. `bucket` is for the record in the worker page; -1 if it is no gradient bucket.
  virtual absl::Status AllReduceSum(float* data, size_t count, int bucket = -1) = 0;
  virtual absl::Status AllReduceSum(double* data, size_t count) = 0;
  // `data` holds size() chunks of `count`; on return out[i] is the sum of chunk rank().
  virtual absl::Status ReduceScatterSum(const float* data, float* out, size_t count) = 0;
  // Every rank gives `bytes`; out has size() * bytes, by rank.
  virtual absl::Status AllGather(const void* in, void* out, size_t bytes) = 0;
  virtual absl::Status Broadcast(void* data, size_t bytes, int root) = 0;
  virtual absl::Status Barrier() = 0;

  virtual void Abort(absl::string_view reason) = 0;
};

}  // namespace trainctl

#endif  // TRAINCTL_RUNTIME_WORKER_COMMUNICATOR_H_
