// The whole state of a training run: the tensors (parameters and what the optimizer keeps for each)
// and the few numbers beside them; how it is divided over shards, and read back by any number of
// workers.
#ifndef TRAINCTL_RUNTIME_TRAINER_TRAINING_STATE_H_
#define TRAINCTL_RUNTIME_TRAINER_TRAINING_STATE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "runtime/checkpoint/reader.h"
#include "runtime/checkpoint/safetensors.h"
#include "runtime/worker/sampler.h"

namespace trainctl {

struct StateTensor {
  std::string name;
  std::vector<int64_t> shape;  // float32
  float* data = nullptr;
  int64_t size = 0;
};

// By tensor, the rank that writes it: the largest first, each to the rank with the least so far.
// PURE.
std::vector<int> AssignToRanks(const std::vector<StateTensor>& tensors, int world_size);

// The views of what `rank` writes.
std::vector<TensorView> ShardOf(const std::vector<StateTensor>& tensors, int rank, int world_size);

// Fills every tensor from the shards, whatever their number, verifying each shard's digest.
// DATA_LOSS: damaged. FAILED_PRECONDITION: whole, but of another model or optimizer. After a
// failure the tensors hold a mixture.
absl::Status LoadTensors(const FoundCheckpoint& checkpoint,
                         const std::vector<StateTensor>& tensors);

// What mixed precision keeps beside the tensors.
struct UpdateState {
  int64_t updates = 0;     // applied: steps without those whose gradient was not finite
  double loss_scale = 0;   // of float16; 0: none
  int64_t good_steps = 0;  // since the scale last changed
};

// The numbers that are part of a checkpoint.
struct Progress {
  int64_t samples = 0;  // consumed by the whole job so far
  SamplerPosition position;
  uint64_t seed = 0;
  int64_t data_samples = 0;  // of one pass
  UpdateState update;
  std::string bucket_plan;  // JSON; empty: not known
  std::string config;       // JSON, for whoever looks at the checkpoint
};
std::string FormatProgress(const Progress& progress);  // a JSON object
// DATA_LOSS: not such a text. FAILED_PRECONDITION: not of a run with this seed and this much data.
absl::StatusOr<Progress> ParseProgress(absl::string_view json, uint64_t seed, int64_t data_samples);

// The JSON text of a bucket plan in a file that holds it alone or is the manifest of a checkpoint.
absl::StatusOr<std::string> ReadPlanFile(const std::string& path);

}  // namespace trainctl

#endif  // TRAINCTL_RUNTIME_TRAINER_TRAINING_STATE_H_
