// What a communicator asks of its rank's GPU. Tests without a GPU have another.
#ifndef TRAINCTL_RUNTIME_NCCL_COMMUNICATOR_GPU_H_
#define TRAINCTL_RUNTIME_NCCL_COMMUNICATOR_GPU_H_

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/device/stream.h"

namespace trainctl {

class CommunicatorGpu {
 public:
  // The GPU that CUDA numbers `device`. Makes its context, a stream of high priority, and 256 bytes
  // of memory that are zero.
  static absl::StatusOr<std::unique_ptr<CommunicatorGpu>> Open(int device);
  virtual ~CommunicatorGpu() = default;

  virtual std::string pci() const = 0;  // its address, by which two ranks see that they share it
  // Makes it the calling thread's. May be called after this object's end.
  virtual std::function<absl::Status()> enter() const = 0;
  virtual CudaStream stream() const = 0;  // of calls that name none
  virtual absl::StatusOr<bool> IsDone(CudaStream stream) = 0;
  virtual float* scratch() const = 0;
};

}  // namespace trainctl

#endif  // TRAINCTL_RUNTIME_NCCL_COMMUNICATOR_GPU_H_
