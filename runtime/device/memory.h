// Memory of the GPU, and memory of the CPU that a GPU copies to and from at full speed.
#ifndef TRAINCTL_RUNTIME_DEVICE_MEMORY_H_
#define TRAINCTL_RUNTIME_DEVICE_MEMORY_H_

#include <cstddef>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "runtime/device/stream.h"

namespace trainctl {

enum class MemoryPlace {
  kDevice,  // the device that was current when it was allocated
  kPinned,  // the CPU, page-locked, so that copies run beside kernels
};

// Owns memory. Movable, empty by default. Not initialised. Aligned to 256 bytes. Freeing it waits
// for the device.
template <MemoryPlace kPlace>
class OwnedMemory {
 public:
  OwnedMemory() = default;
  // `name` is the tensor's, for messages. RESOURCE_EXHAUSTED says what was asked for and, of a
  // device, what is free. 0 bytes is empty.
  static absl::StatusOr<OwnedMemory> Allocate(absl::string_view name, size_t bytes);
  OwnedMemory(OwnedMemory&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  OwnedMemory& operator=(OwnedMemory&& other) noexcept {
    if (this == &other) return *this;
    Free();
    data_ = std::exchange(other.data_, nullptr);
    bytes_ = std::exchange(other.bytes_, 0);
    return *this;
  }
  ~OwnedMemory() { Free(); }

  void* data() const { return data_; }
  template <typename T>
  T* As() const {
    return static_cast<T*>(data_);
  }
  size_t bytes() const { return bytes_; }

 private:
  OwnedMemory(void* data, size_t bytes) : data_(data), bytes_(bytes) {}
  void Free();

  void* data_ = nullptr;
  size_t bytes_ = 0;
};

using DeviceMemory = OwnedMemory<MemoryPlace::kDevice>;
using PinnedMemory = OwnedMemory<MemoryPlace::kPinned>;

template <>
absl::StatusOr<DeviceMemory> DeviceMemory::Allocate(absl::string_view name, size_t bytes);
template <>
absl::StatusOr<PinnedMemory> PinnedMemory::Allocate(absl::string_view name, size_t bytes);
template <>
void DeviceMemory::Free();
template <>
void PinnedMemory::Free();

// Between any two of GPU, pinned and ordinary memory, in the order of `stream`; returns when
// enqueued. Both stay as they are until the stream has come so far. With ordinary memory it may
// return later, but is right too.
absl::Status Copy(absl::string_view what, void* to, const void* from, size_t bytes,
                  CudaStream stream);
absl::Status Fill(absl::string_view what, void* data, unsigned char byte, size_t bytes,
                  CudaStream stream);

}  // namespace trainctl

#endif  // TRAINCTL_RUNTIME_DEVICE_MEMORY_H_
