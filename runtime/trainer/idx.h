// Files in the IDX format (big-endian magic 00 00 TYPE DIMENSIONS, then one u32 per dimension, then
// the elements), plain or compressed with gzip. Only unsigned bytes are read.
#ifndef TRAINCTL_RUNTIME_TRAINER_IDX_H_
#define TRAINCTL_RUNTIME_TRAINER_IDX_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace trainctl {

struct IdxArray {
  std::string path;  // of the file that was read
  std::vector<int64_t> shape;
  std::vector<uint8_t> values;
  std::string digest;  // of the whole unpacked file, as Digest::Text
};

// Reads `path`, or `path`.gz if there is no `path`. Memory grows with what the file really holds,
// whatever its header claims. NOT_FOUND; DATA_LOSS: truncated or longer than its header says;
// INVALID_ARGUMENT: not such a file, or more than 4 GiB.
absl::StatusOr<IdxArray> ReadIdx(const std::string& path, int dimensions);

}  // namespace trainctl

#endif  // TRAINCTL_RUNTIME_TRAINER_IDX_H_
