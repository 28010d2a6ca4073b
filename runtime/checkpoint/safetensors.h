// Files of named tensors in the safetensors format: u64 header length, JSON header, one contiguous
// buffer. The reader is strict: the buffer is covered exactly, without holes or overlaps, every
// product and sum is checked, nothing is allocated by a number that the file claims.
#ifndef TRAINCTL_RUNTIME_CHECKPOINT_SAFETENSORS_H_
#define TRAINCTL_RUNTIME_CHECKPOINT_SAFETENSORS_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace trainctl {

inline constexpr uint64_t kMaxSafetensorsHeader = 100'000'000;

enum class Dtype { kBool, kU8, kI8, kU16, kI16, kF16, kBf16, kU32, kI32, kF32, kU64, kI64, kF64 };
absl::string_view DtypeName(Dtype dtype);
size_t DtypeBytes(Dtype dtype);

// A tensor in memory that somebody else owns.
struct TensorView {
  std::string name;
  Dtype dtype = Dtype::kF32;
  std::vector<int64_t> shape;  // row-major; empty = scalar
  const void* data = nullptr;
};

using ByteSink = std::function<absl::Status(absl::string_view)>;

// Gives the bytes of the file to `sink`, in order, each tensor in pieces of at most 4 MiB.
// REQUIRES: names differ and none is "__metadata__".
absl::Status WriteSafetensors(std::vector<TensorView> tensors,
                              const std::map<std::string, std::string>& metadata,
                              const ByteSink& sink);

// A parsed file, held in memory whole. Views point into it and live as long as it does.
class SafetensorsFile {
 public:
  // INVALID_ARGUMENT says what is wrong and at which tensor. `bytes` is kept.
  static absl::StatusOr<SafetensorsFile> Parse(std::string bytes);

  SafetensorsFile(SafetensorsFile&&) = default;
  SafetensorsFile& operator=(SafetensorsFile&&) = default;

  // By name. `data` may be unaligned if another program wrote the file; copy it with memcpy.
  std::vector<TensorView> tensors() const;
  const std::map<std::string, std::string>& metadata() const { return metadata_; }

 private:
  struct Entry {
    Dtype dtype = Dtype::kU8;
    std::vector<int64_t> shape;
    uint64_t begin = 0;
    uint64_t end = 0;
  };
  class HeaderReader;

  SafetensorsFile() = default;
  absl::Status CheckLayout() const;

  std::string bytes_;
  size_t buffer_ = 0;  // where the tensors begin in bytes_
  std::map<std::string, Entry> entries_;
  std::map<std::string, std::string> metadata_;
};

}  // namespace trainctl

#endif  // TRAINCTL_RUNTIME_CHECKPOINT_SAFETENSORS_H_
