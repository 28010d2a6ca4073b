#include "runtime/base/codec.h"

namespace trainctl {

void Writer::Field(const std::string& value) {
  Field(static_cast<uint32_t>(value.size()));
  out_.append(value);
}

void Reader::Field(std::string& value) {
  uint32_t size = 0;
  Field(size);
  if (size > in_.size()) return Fail();
  value.assign(in_.data(), size);
  in_.remove_prefix(size);
}

}  // namespace trainctl
