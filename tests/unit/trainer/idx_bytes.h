// Files as MNIST's, of values that a test gives.
#ifndef TRAINCTL_TESTS_UNIT_TRAINER_IDX_BYTES_H_
#define TRAINCTL_TESTS_UNIT_TRAINER_IDX_BYTES_H_

#include <cstdint>
#include <string>
#include <vector>

namespace trainctl {

inline std::string BigEndian(uint32_t value) {
  return {static_cast<char>(value >> 24), static_cast<char>(value >> 16),
          static_cast<char>(value >> 8), static_cast<char>(value)};
}

inline std::string Idx(const std::vector<uint32_t>& shape, const std::string& values) {
  std::string bytes = BigEndian(0x800 | static_cast<uint32_t>(shape.size()));
  for (uint32_t extent : shape) bytes += BigEndian(extent);
  return bytes + values;
}

}  // namespace trainctl

#endif  // TRAINCTL_TESTS_UNIT_TRAINER_IDX_BYTES_H_
