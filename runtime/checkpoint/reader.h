// Finding and loading checkpoints. Reads only; several processes may read and one may write at
// once.
#ifndef TRAINCTL_RUNTIME_CHECKPOINT_READER_H_
#define TRAINCTL_RUNTIME_CHECKPOINT_READER_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/base/ids.h"
#include "runtime/checkpoint/manifest.h"
#include "runtime/checkpoint/safetensors.h"

namespace trainctl {

struct RejectedCheckpoint {
  Step step;
  std::string reason;
};

struct FoundCheckpoint {
  std::string path;  // DIR/step-NNNNNNNNN
  Manifest manifest;
};

struct CheckpointSearch {
  std::optional<FoundCheckpoint> found;      // none: start from the beginning
  std::vector<RejectedCheckpoint> rejected;  // newer ones that are damaged, newest first
};

// Steps that have a folder, ascending; nothing is opened. A missing DIR has none.
absl::StatusOr<std::vector<Step>> ListCheckpoints(const std::string& folder);

// Manifest valid, of this step, every shard present with its length. DATA_LOSS: damaged.
absl::StatusOr<FoundCheckpoint> OpenCheckpoint(const std::string& folder, Step step);

// The newest that OpenCheckpoint accepts, not above `limit`. Cheap: reads no shard.
absl::StatusOr<CheckpointSearch> NewestValid(const std::string& folder,
                                             std::optional<Step> limit = std::nullopt);

// One shard, read whole, its digest verified. DATA_LOSS: damaged, says how.
absl::StatusOr<SafetensorsFile> LoadShard(const FoundCheckpoint& checkpoint, int rank);

}  // namespace trainctl

#endif  // TRAINCTL_RUNTIME_CHECKPOINT_READER_H_
