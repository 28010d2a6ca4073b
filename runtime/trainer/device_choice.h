// Decides on what, and in which arithmetic, a worker trains.
#ifndef TRAINCTL_RUNTIME_TRAINER_DEVICE_CHOICE_H_
#define TRAINCTL_RUNTIME_TRAINER_DEVICE_CHOICE_H_

#include <string>

#include "absl/status/statusor.h"
#include "runtime/trainer/precision.h"

namespace trainctl {

enum class Device { kAuto, kCpu, kCuda };

struct FoundGpu {
  int number = -1;   // as CUDA counts; -1: none
  int sm = 0;        // compute capability 9.0 is 90
  std::string text;  // its name; of none, the reason
};

struct DeviceChoice {
  bool gpu = false;
  Precision precision = Precision::kFp32;  // never kAuto
  std::string reason;                      // one sentence for the user; empty: nothing was open
};

// `unsupported` says why this job cannot be trained on a GPU; empty: it can. INVALID_ARGUMENT: a
// precision that the device cannot do. FAILED_PRECONDITION: a GPU is asked for and cannot be used.
// PURE.
absl::StatusOr<DeviceChoice> ChooseDevice(Device wanted, Precision precision, const FoundGpu& gpu,
                                          const std::string& unsupported);

const char* PrecisionName(Precision precision);

}  // namespace trainctl

#endif  // TRAINCTL_RUNTIME_TRAINER_DEVICE_CHOICE_H_
