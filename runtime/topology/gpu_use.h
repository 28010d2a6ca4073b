// Who uses a GPU now, and what it tells of its errors, as the NVIDIA driver says. Creates no CUDA
// context.
#ifndef TRAINCTL_RUNTIME_TOPOLOGY_GPU_USE_H_
#define TRAINCTL_RUNTIME_TOPOLOGY_GPU_USE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/base/time.h"
#include "runtime/topology/nvml_api.h"
#include "runtime/topology/worker_binding.h"

namespace trainctl {

struct GpuProcess {
  int pid = 0;            // as the driver counts them, which in a container may be nobody's here
  std::string name;       // of its program; empty: it is not to be seen from here
  std::string owner;      // empty: as above
  std::string job;        // of ours, whose worker it is; empty: none, or not to be seen
  int64_t used_mib = -1;  // -1: the driver does not tell
};

struct GpuUse {
  int64_t used_mib = -1;  // of its memory, without what the driver keeps for itself; -1: not told
  std::vector<GpuProcess> processes;
  std::string problem;  // why it cannot be asked; empty: it was
};

struct GpuError {
  std::string uuid;
  int64_t xid = 0;
};

// The driver, opened for a while. Calls block as long as it does. Thread-safe, but for moves.
class NvmlSession {
 public:
  // UNAVAILABLE: there is no driver to ask.
  static absl::StatusOr<NvmlSession> Open();
  NvmlSession(NvmlSession&& other) noexcept;
  NvmlSession& operator=(NvmlSession&&) = delete;
  ~NvmlSession();

  GpuUse Use(const std::string& uuid) const;  // of a GPU or a slice of one
  // From now on errors of these are told. UNIMPLEMENTED: the driver tells none here.
  absl::Status ListenForErrors(const std::vector<std::string>& uuids);
  // The next one, nullopt if none came for so long. UNAVAILABLE: there will be no more.
  absl::StatusOr<std::optional<GpuError>> NextError(Duration patience) const;

 private:
  explicit NvmlSession(const NvmlApi& api) : api_(api), open_(true) {}

  NvmlApi api_;
  bool open_;
  NvmlEventSet events_ = nullptr;
  std::vector<std::pair<NvmlDevice, std::string>> listening_;
};

// "process 812 (python3) of alice, 34816 MiB"
std::string DescribeProcess(const GpuProcess& process);

// FAILED_PRECONDITION names a GPU that cannot be used, or is in use, and by whom. Asks the driver;
// without one nothing is known.
absl::Status CheckGpusAreFree(const std::vector<GpuWorker>& workers);

}  // namespace trainctl

#endif  // TRAINCTL_RUNTIME_TOPOLOGY_GPU_USE_H_
