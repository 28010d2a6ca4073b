#include "runtime/device/memory.h"

#include <cuda_runtime_api.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "runtime/base/status.h"
#include "runtime/device/cuda_error.h"
#include "runtime/device/device.h"

namespace trainctl {
namespace {

std::string SizeText(double bytes) {
  if (bytes < 1 << 20) return absl::StrFormat("%.0f bytes", bytes);
  if (bytes < 1 << 30) return absl::StrFormat("%.1f MiB", bytes / (1 << 20));
  return absl::StrFormat("%.2f GiB", bytes / (1 << 30));
}

absl::Status NoMemory(absl::string_view name, size_t bytes) {
  std::string text = absl::StrCat("allocate ", name, ": out of GPU memory; ",
                                  SizeText(static_cast<double>(bytes)), " were asked for");
  const absl::StatusOr<DeviceMemoryUse> use = MemoryUse();
  const absl::StatusOr<int> device = CurrentDevice();
  if (use.ok() && device.ok()) {
    absl::StrAppend(&text, ", and ", SizeText(static_cast<double>(use->free_bytes)), " of ",
                    SizeText(static_cast<double>(use->total_bytes)), " of GPU ", *device,
                    " are free");
  }
  absl::StrAppend(&text, "; take a smaller micro-batch, or see nvidia-smi for who else uses it");
  return absl::ResourceExhaustedError(text);
}

}  // namespace

template <>
absl::StatusOr<DeviceMemory> DeviceMemory::Allocate(absl::string_view name, size_t bytes) {
  if (bytes == 0) return DeviceMemory();
  void* data = nullptr;
  const cudaError_t error = ::cudaMalloc(&data, bytes);
  if (error == cudaErrorMemoryAllocation) {
    ::cudaGetLastError();  // or it would be taken for the next kernel's
    return NoMemory(name, bytes);
  }
  RETURN_IF_ERROR(CudaStatus(error, absl::StrCat("allocate ", name)));
  return DeviceMemory(data, bytes);
}

template <>
void DeviceMemory::Free() {
  // It fails only where the device is lost, and its memory with it.
  if (data_ != nullptr) ::cudaFree(data_);
  data_ = nullptr;
}

template <>
absl::StatusOr<PinnedMemory> PinnedMemory::Allocate(absl::string_view name, size_t bytes) {
  if (bytes == 0) return PinnedMemory();
  void* data = nullptr;
  const cudaError_t error = ::cudaMallocHost(&data, bytes);
  if (error == cudaErrorMemoryAllocation) {
    ::cudaGetLastError();
    return absl::ResourceExhaustedError(absl::StrCat(
        "allocate ", name, ": ", SizeText(static_cast<double>(bytes)),
        " of page-locked memory were not to be had; see free memory, and the container's limit"));
  }
  RETURN_IF_ERROR(CudaStatus(error, absl::StrCat("allocate ", name)));
  return PinnedMemory(data, bytes);
}

template <>
void PinnedMemory::Free() {
  if (data_ != nullptr) ::cudaFreeHost(data_);
  data_ = nullptr;
}

absl::Status Copy(absl::string_view what, void* to, const void* from, size_t bytes,
                  CudaStream stream) {
  const cudaError_t error = ::cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream);
  if (error == cudaSuccess) return absl::OkStatus();
  return CudaStatus(error, absl::StrCat("copy ", what));
}

absl::Status Fill(absl::string_view what, void* data, unsigned char byte, size_t bytes,
                  CudaStream stream) {
  const cudaError_t error = ::cudaMemsetAsync(data, byte, bytes, stream);
  if (error == cudaSuccess) return absl::OkStatus();
  return CudaStatus(error, absl::StrCat("fill ", what));
}

}  // namespace trainctl
