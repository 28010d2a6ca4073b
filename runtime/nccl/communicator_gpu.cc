#include "runtime/nccl/communicator_gpu.h"

#include <cuda_runtime_api.h>

#include <utility>

#include "runtime/base/status.h"
#include "runtime/device/cuda_error.h"
#include "runtime/device/device.h"
#include "runtime/device/memory.h"

namespace trainctl {
namespace {

constexpr size_t kScratchBytes = 256;

class CudaGpu : public CommunicatorGpu {
 public:
  CudaGpu(int device, std::string pci) : device_(device), pci_(std::move(pci)) {}

  absl::Status Start() {
    ASSIGN_OR_RETURN(stream_, Stream::Create(Stream::Priority::kHigh));
    ASSIGN_OR_RETURN(scratch_, DeviceMemory::Allocate("the communicator's barrier", kScratchBytes));
    RETURN_IF_ERROR(
        Fill("the communicator's barrier", scratch_.data(), 0, kScratchBytes, stream_.get()));
    return stream_.Wait();
  }

  std::string pci() const override { return pci_; }
  std::function<absl::Status()> enter() const override {
    return [device = device_] { return UseDevice(device); };
  }
  CudaStream stream() const override { return stream_.get(); }
  absl::StatusOr<bool> IsDone(CudaStream stream) override {
    const cudaError_t error = ::cudaStreamQuery(stream);
    if (error == cudaSuccess) return true;
    if (error != cudaErrorNotReady) return CudaStatus(error, "wait for a collective on the GPU");
    ::cudaGetLastError();
    return false;
  }
  float* scratch() const override { return scratch_.As<float>(); }

 private:
  const int device_;
  const std::string pci_;
  Stream stream_;
  DeviceMemory scratch_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<CommunicatorGpu>> CommunicatorGpu::Open(int device) {
  ASSIGN_OR_RETURN(const int count, CountDevices());
  if (device >= count) {
    return absl::InvalidArgumentError(
        absl::StrCat("use GPU ", device, ": this worker sees ", count,
                     "; start no more workers on a node than it has GPUs (--nproc-per-node gpu)"));
  }
  ASSIGN_OR_RETURN(DeviceProperties properties, PropertiesOf(device));
  RETURN_IF_ERROR(UseDevice(device));
  auto gpu = std::make_unique<CudaGpu>(device, std::move(properties.pci));
  RETURN_IF_ERROR(gpu->Start());
  return gpu;
}

}  // namespace trainctl
