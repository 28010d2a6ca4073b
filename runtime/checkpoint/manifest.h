// manifest.json of a checkpoint: what the folder holds and the state that is not tensors. A folder
// without a valid manifest does not exist as far as any reader is concerned.
#ifndef TRAINCTL_RUNTIME_CHECKPOINT_MANIFEST_H_
#define TRAINCTL_RUNTIME_CHECKPOINT_MANIFEST_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "runtime/base/ids.h"

namespace trainctl {

inline constexpr int kManifestSchema = 1;
inline constexpr char kManifestFile[] = "manifest.json";

struct ShardFile {
  std::string file;  // name inside the folder
  uint64_t length = 0;
  std::string digest;  // as Digest::Text
  bool operator==(const ShardFile&) const = default;
};

struct Manifest {
  Step step;
  Term term;
  Epoch epoch;
  int world_size = 0;
  std::vector<ShardFile> shards;  // by rank, one for each
  std::string state = "{}";       // a JSON object that only the training program understands
};

// The file carries a digest of itself (of the compact form without the member "digest"), so that a
// flipped bit in a learning rate is found as surely as one in a shard.
// INVALID_ARGUMENT if `state` is not a JSON object.
absl::StatusOr<std::string> FormatManifest(const Manifest& manifest);
// DATA_LOSS says what is wrong. Shard names are proved to be the expected ones, so no name in a
// manifest can lead outside its folder.
absl::StatusOr<Manifest> ParseManifest(absl::string_view text);

std::string StepFolderName(Step step);                       // "step-000000200"
std::optional<Step> ParseStepFolderName(absl::string_view);  // nullopt: some other name
std::string HiddenFolderName(Step step, Epoch epoch);        // ".step-000000200.epoch-3"
bool IsHiddenFolderName(absl::string_view name);             // unfinished, or being deleted
std::string DeletedFolderName(Step step);                    // ".deleted-step-000000200"
std::string ShardFileName(int rank, int world_size);         // "shard-00000-of-00002.safetensors"

}  // namespace trainctl

#endif  // TRAINCTL_RUNTIME_CHECKPOINT_MANIFEST_H_
