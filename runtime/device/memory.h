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

// Owns memory of the device that was current when it was allocated. Movable, empty by default. Not
// initialised. Aligned to 256 bytes. Freeing it waits for the device.
class DeviceMemory {
 public:
  DeviceMemory() = default;
  // `name` is the tensor's, for messages. RESOURCE_EXHAUSTED says what was asked for and what is
  // free. 0 bytes is empty.
  static absl::StatusOr<DeviceMemory> Allocate(absl::string_view name, size_t bytes);
  DeviceMemory(DeviceMemory&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  DeviceMemory& operator=(DeviceMemory&& other) noexcept;
  ~DeviceMemory() { Free(); }

  void* data() const { return data_; }
  template <typename T>
  T* As() const {
    return static_cast<T*>(data_);
  }
  size_t bytes() const { return bytes_; }

 private:
  DeviceMemory(void* data, size_t bytes) : data_(data), bytes_(bytes) {}
  void Free();

  void* data_ = nullptr;
  size_t bytes_ = 0;
};

// The same of the CPU: page-locked, so that copies run beside kernels.
class PinnedMemory {
 public:
  PinnedMemory() = default;
  static absl::StatusOr<PinnedMemory> Allocate(absl::string_view name, size_t bytes);
  PinnedMemory(PinnedMemory&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  PinnedMemory& operator=(PinnedMemory&& other) noexcept;
  ~PinnedMemory() { Free(); }

  void* data() const { return data_; }
  template <typename T>
  T* As() const {
    return static_cast<T*>(data_);
  }
  size_t bytes() const { return bytes_; }

 private:
  PinnedMemory(void* data, size_t bytes) : data_(data), bytes_(bytes) {}
  void Free();

  void* data_ = nullptr;
  size_t bytes_ = 0;
};

// Between any two of GPU, pinned and ordinary memory, in the order of `stream`; returns when
// enqueued. Both stay as they are until the stream has come so far. With ordinary memory it may
// return later, but is right too.
absl::Status Copy(absl::string_view what, void* to, const void* from, size_t bytes,
                  CudaStream stream);
absl::Status Fill(absl::string_view what, void* data, unsigned char byte, size_t bytes,
                  CudaStream stream);

}  // namespace trainctl

#endif  // TRAINCTL_RUNTIME_DEVICE_MEMORY_H_
