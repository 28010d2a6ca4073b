// The GPUs that this process sees, as CUDA numbers them.
#ifndef TRAINCTL_RUNTIME_DEVICE_DEVICE_H_
#define TRAINCTL_RUNTIME_DEVICE_DEVICE_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace trainctl {

struct DeviceProperties {
  std::string name;  // "NVIDIA H200"
  std::string pci;   // "0000:3b:00.0"
  std::string uuid;  // "GPU-…", as nvidia-smi shows it
  int sm = 0;        // compute capability 9.0 is 90
  int multiprocessors = 0;
  int64_t memory_bytes = 0;
};

// UNAVAILABLE: no driver, or no GPU; FAILED_PRECONDITION: the driver is too old (with both
// versions). At least 1 otherwise. Makes no context.
absl::StatusOr<int> CountDevices();
absl::StatusOr<DeviceProperties> PropertiesOf(int device);

// Makes `device` the one that this thread's calls are about, and its context, which takes some
// hundred milliseconds and MiB the first time. Only workers and children of preflight may.
absl::Status UseDevice(int device);
absl::StatusOr<int> CurrentDevice();

// Waits for everything that was given to the current device.
absl::Status SynchronizeDevice();

struct DeviceMemoryUse {
  int64_t free_bytes = 0;
  int64_t total_bytes = 0;
};
absl::StatusOr<DeviceMemoryUse> MemoryUse();  // of the current device, by all processes

}  // namespace trainctl

#endif  // TRAINCTL_RUNTIME_DEVICE_DEVICE_H_
