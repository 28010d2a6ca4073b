// Fixed little-endian encoding used by shim frames and journal records: integers as is, double by
// its bits, bool as u8, string and vector with a u32 count. The reader never allocates more than
// the bytes it was given.
#ifndef TRAINCTL_RUNTIME_BASE_CODEC_H_
#define TRAINCTL_RUNTIME_BASE_CODEC_H_

#include <cstdint>
#include <cstring>
#include <string>
#include <type_traits>
#include <vector>

#include "absl/strings/string_view.h"

namespace trainctl {

// Both ends visit the same fields in the same order: `void Visit(Archive& a, T& value)`.
class Writer {
 public:
  template <typename T>
  requires std::is_arithmetic_v<T> || std::is_enum_v<T>
  void Field(const T& value) { out_.append(reinterpret_cast<const char*>(&value), sizeof(value)); }
  void Field(const std::string& value);
  template <typename T>
  void Count(const std::vector<T>& values) {
    Field(static_cast<uint32_t>(values.size()));
  }
  std::string Take() { return std::move(out_); }

 private:
  std::string out_;
};

class Reader {
 public:
  explicit Reader(absl::string_view in) : in_(in) {}
  template <typename T>
  requires std::is_arithmetic_v<T> || std::is_enum_v<T>
  void Field(T& value) {
    if (in_.size() < sizeof(value)) return Fail();
    std::memcpy(&value, in_.data(), sizeof(value));
    in_.remove_prefix(sizeof(value));
  }
  void Field(bool& value) {  // any byte but 0 is true
    uint8_t byte = 0;
    Field(byte);
    value = byte != 0;
  }
  void Field(std::string& value);
  // Sizes `values` for its elements; each element needs at least one byte, which bounds the count.
  template <typename T>
  void Count(std::vector<T>& values) {
    uint32_t n = 0;
    Field(n);
    if (n > in_.size()) return Fail();
    values.resize(n);
  }
  bool ok() const { return ok_; }
  bool AtEnd() const { return ok_ && in_.empty(); }
  void Reject() { Fail(); }  // the caller found a value that cannot be

 private:
  void Fail() {
    ok_ = false;
    in_ = {};
  }
  absl::string_view in_;
  bool ok_ = true;
};

}  // namespace trainctl

#endif  // TRAINCTL_RUNTIME_BASE_CODEC_H_
