// The GPUs of one job on this node, while it has them: when what the old workers had is free again,
// and errors of the hardware. The driver may block for seconds, so that it is asked on threads of
// its own, which end by themselves soon after this object.
#ifndef TRAINCTL_RUNTIME_NODE_GPU_WATCH_H_
#define TRAINCTL_RUNTIME_NODE_GPU_WATCH_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "runtime/base/loop.h"
#include "runtime/topology/gpu_use.h"
#include "runtime/topology/worker_binding.h"

namespace trainctl {

// What of a GPU's memory is in use when nothing of the job runs, by GPU; -1: not known.
using GpuBaseline = std::vector<int64_t>;

struct FreeVerdict {
  bool free = false;
  std::string why;  // what is left, or what was looked at
};
// Whether nothing is left of the job on a GPU. Where the driver shows no process, as in a
// container, its memory tells, within what the driver itself comes to need. Pure.
FreeVerdict JudgeFree(const std::string& job_id, const std::string& device, const GpuUse& use,
                      int64_t baseline_mib);

// Lives on the loop's thread.
class GpuWatch {
 public:
  struct Callbacks {
    std::function<void(const GpuError& error)> on_error;
    std::function<void(const std::string& text)> on_word;  // what is waited for, every 5 s
  };
  // `fresh`: no worker of the job has run here yet, so that what is in use now is others'.
  GpuWatch(Loop* loop, std::string job_id, std::vector<GpuWorker> workers, bool fresh,
           Callbacks callbacks);
  ~GpuWatch();
  GpuWatch(const GpuWatch&) = delete;
  GpuWatch& operator=(const GpuWatch&) = delete;

  // Calls `then` when the memory of the GPUs is free of this job, or has not become so for 30 s,
  // which is told.
  void AwaitFree(std::function<void()> then);

 private:
  struct Shared;
  std::shared_ptr<Shared> shared_;
  bool unused_;  // no worker was started yet
};

}  // namespace trainctl

#endif  // TRAINCTL_RUNTIME_NODE_GPU_WATCH_H_
