#include "runtime/device/device.h"

#include <cuda_runtime_api.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "runtime/base/status.h"
#include "runtime/device/cuda_error.h"

namespace trainctl {
namespace {

std::string UuidText(const cudaUUID_t& uuid) {
  std::string text = "GPU-";
  for (int i = 0; i < 16; ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text += "-";
    absl::StrAppendFormat(&text, "%02x", static_cast<unsigned char>(uuid.bytes[i]));
  }
  return text;
}

}  // namespace

absl::StatusOr<int> CountDevices() {
  int count = 0;
  RETURN_IF_ERROR(CudaStatus(::cudaGetDeviceCount(&count), "count the GPUs"));
  if (count == 0) return CudaStatus(cudaErrorNoDevice, "count the GPUs");
  return count;
}

absl::StatusOr<DeviceProperties> PropertiesOf(int device) {
  cudaDeviceProp found{};
  RETURN_IF_ERROR(CudaStatus(::cudaGetDeviceProperties(&found, device),
                             absl::StrCat("ask for the properties of GPU ", device)));
  DeviceProperties properties;
  properties.name = found.name;
  properties.pci =
      absl::StrFormat("%04x:%02x:%02x.0", found.pciDomainID, found.pciBusID, found.pciDeviceID);
  properties.uuid = UuidText(found.uuid);
  properties.sm = found.major * 10 + found.minor;
  properties.multiprocessors = found.multiProcessorCount;
  properties.memory_bytes = static_cast<int64_t>(found.totalGlobalMem);
  return properties;
}

absl::Status UseDevice(int device) {
  const cudaError_t error = ::cudaSetDevice(device);
  if (error == cudaSuccess) return absl::OkStatus();
  return CudaStatus(error, absl::StrCat("begin to use GPU ", device));
}

absl::StatusOr<int> CurrentDevice() {
  int device = 0;
  RETURN_IF_ERROR(CudaStatus(::cudaGetDevice(&device), "ask which GPU is in use"));
  return device;
}

absl::Status SynchronizeDevice() {
  return CudaStatus(::cudaDeviceSynchronize(), "wait for the GPU");
}

absl::StatusOr<DeviceMemoryUse> MemoryUse() {
  size_t free = 0, total = 0;
  RETURN_IF_ERROR(CudaStatus(::cudaMemGetInfo(&free, &total), "ask for the memory of the GPU"));
  return DeviceMemoryUse{static_cast<int64_t>(free), static_cast<int64_t>(total)};
}

}  // namespace trainctl
