// CUDA's errors as Status.
//
// RESOURCE_EXHAUSTED memory · UNAVAILABLE no driver, no GPU, or one that others have to themselves
// · FAILED_PRECONDITION driver or machine not ready for this program · INVALID_ARGUMENT no such GPU
// · INTERNAL everything else: a kernel of ours, or the device itself, failed.
#ifndef TRAINCTL_RUNTIME_DEVICE_CUDA_ERROR_H_
#define TRAINCTL_RUNTIME_DEVICE_CUDA_ERROR_H_

#include <cuda_runtime_api.h>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace trainctl {

// OK for cudaSuccess, else "<doing>: <what CUDA says> (cudaErrorName)" and what to do about it.
// `doing` says what was being done, to what: "copy wte to GPU0".
absl::Status CudaStatus(cudaError_t error, absl::string_view doing);

// Of the kernel that was started last by this thread: whether it could be started. What goes wrong
// in it shows at a later call.
absl::Status LaunchStatus(absl::string_view kernel);

// Whether a driver can run programs of a toolkit, both as CUDA numbers them (13020 is 13.2). A
// driver of 0 is none. Pure.
absl::Status CheckDriver(int driver, int toolkit);

}  // namespace trainctl

#endif  // TRAINCTL_RUNTIME_DEVICE_CUDA_ERROR_H_
