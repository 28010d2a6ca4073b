#include "runtime/device/cuda_error.h"

#include <string>

#include "absl/strings/str_cat.h"

namespace trainctl {
namespace {

std::string VersionText(int version) {
  return absl::StrCat(version / 1000, ".", version % 1000 / 10);
}

absl::Status CheckThisDriver() {
  int driver = 0;
  const cudaError_t asked = ::cudaDriverGetVersion(&driver);
  return CheckDriver(asked == cudaSuccess ? driver : 0, CUDART_VERSION);
}

absl::StatusCode CodeOf(cudaError_t error) {
  switch (error) {
    case cudaErrorMemoryAllocation:
      return absl::StatusCode::kResourceExhausted;
    case cudaErrorNoDevice:
    case cudaErrorDevicesUnavailable:
      return absl::StatusCode::kUnavailable;
    case cudaErrorSystemNotReady:
    case cudaErrorSystemDriverMismatch:
    case cudaErrorCompatNotSupportedOnDevice:
    case cudaErrorNoKernelImageForDevice:
      return absl::StatusCode::kFailedPrecondition;
    case cudaErrorInvalidDevice:
      return absl::StatusCode::kInvalidArgument;
    default:
      return absl::StatusCode::kInternal;
  }
}

const char* RemedyOf(cudaError_t error) {
  switch (error) {
    case cudaErrorNoDevice:
      return "; see nvidia-smi -L, CUDA_VISIBLE_DEVICES, and whether the container was given a GPU";
    case cudaErrorDevicesUnavailable:
      return "; another process has the GPU to itself: see nvidia-smi, and its compute mode";
    case cudaErrorSystemNotReady:
      return "; the NVSwitches are not set up: start nvidia-fabricmanager, of the driver's version";
    case cudaErrorSystemDriverMismatch:
      return "; kernel module and library of the driver have different versions: restart the "
             "machine";
    case cudaErrorNoKernelImageForDevice:
      return "; this program was not compiled for this GPU: build it with "
             "-DTRAINCTL_CUDA_ARCHITECTURES for it";
    case cudaErrorIllegalAddress:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorHardwareStackError:
    case cudaErrorAssert:
    case cudaErrorLaunchFailure:
      return "; this process has lost its GPU, and only a new one can use it "
             "(compute-sanitizer finds the place)";
    case cudaErrorECCUncorrectable:
    case cudaErrorNvlinkUncorrectable:
    case cudaErrorContained:
      return "; the hardware failed: see dmesg for an Xid, and take the node out";
    default:
      return "";
  }
}

}  // namespace

absl::Status CheckDriver(int driver, int toolkit) {
  if (driver == 0) {
    return absl::UnavailableError(
        "no NVIDIA driver: libcuda.so.1 is not there; install the driver, or give it to the "
        "container");
  }
  // Within a major version, an older driver runs the programs of a newer toolkit.
  if (driver / 1000 < toolkit / 1000) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the driver is too old: it serves CUDA ", VersionText(driver),
        ", and this program was built with CUDA ", VersionText(toolkit), "; update the driver to ",
        "one that serves CUDA ", toolkit / 1000, ".0 or later, or build with an older toolkit"));
  }
  return absl::OkStatus();
}

absl::Status CudaStatus(cudaError_t error, absl::string_view doing) {
  if (error == cudaSuccess) return absl::OkStatus();
  // Without a driver the runtime says that it is too old.
  if (error == cudaErrorInsufficientDriver || error == cudaErrorStubLibrary) {
    if (const absl::Status driver = CheckThisDriver(); !driver.ok()) {
      return absl::Status(driver.code(), absl::StrCat(doing, ": ", driver.message()));
    }
  }
  return absl::Status(CodeOf(error), absl::StrCat(doing, ": ", ::cudaGetErrorString(error), " (",
                                                  ::cudaGetErrorName(error), ")", RemedyOf(error)));
}

absl::Status LaunchStatus(absl::string_view kernel) {
  const cudaError_t error = ::cudaGetLastError();
  if (error == cudaSuccess) return absl::OkStatus();
  return CudaStatus(error, absl::StrCat("start the kernel ", kernel));
}

}  // namespace trainctl
