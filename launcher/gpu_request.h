// What a launch says of GPUs, merged with what this node has. Starts and locks nothing.
#ifndef TRAINCTL_LAUNCHER_GPU_REQUEST_H_
#define TRAINCTL_LAUNCHER_GPU_REQUEST_H_

#include <string>

#include "absl/status/statusor.h"
#include "launcher/command_line.h"
#include "launcher/launch_request.h"

namespace trainctl {

// `workers`: as --nproc-per-node; empty: not given. False: the workers get no GPU from us. True:
// request->gpus says which, and the spec and our own part follow. INVALID_ARGUMENT names the flag;
// FAILED_PRECONDITION: this machine is not fit.
absl::StatusOr<bool> MergeGpus(const LaunchFlags& flags, const std::string& workers,
                               const Surroundings& surroundings, LaunchRequest* request);

}  // namespace trainctl

#endif  // TRAINCTL_LAUNCHER_GPU_REQUEST_H_
