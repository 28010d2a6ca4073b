// A small training state whose every byte follows from its step, so that a test can tell whether
// what it loaded is one step's and whole.
#ifndef TRAINCTL_TESTS_UNIT_CHECKPOINT_SAMPLE_CHECKPOINT_H_
#define TRAINCTL_TESTS_UNIT_CHECKPOINT_SAMPLE_CHECKPOINT_H_

#include <cstring>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"
#include "runtime/checkpoint/reader.h"
#include "runtime/checkpoint/writer.h"

namespace trainctl {

inline constexpr int kSampleWorld = 4;
inline constexpr int kSampleTensors = 8;  // of each rank

inline std::vector<float> SampleValues(Step step, int rank, int tensor) {
  std::vector<float> values(static_cast<size_t>(3 + tensor));
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<float>(step.value * 1000 + rank * 100 + tensor * 10) +
                static_cast<float>(i) / 16;
  }
  return values;
}

inline std::string SampleState(Step step) { return absl::StrCat("{\"step\":", step.value, "}"); }

// What all ranks and the commit do for one step.
inline absl::Status WriteSample(CheckpointWriter& writer, Step step, Epoch epoch) {
  Manifest manifest;
  manifest.step = step;
  manifest.term = Term(1);
  manifest.epoch = epoch;
  manifest.world_size = kSampleWorld;
  manifest.state = SampleState(step);
  for (int rank = 0; rank < kSampleWorld; ++rank) {
    std::vector<std::vector<float>> values;
    std::vector<TensorView> tensors;
    for (int t = 0; t < kSampleTensors; ++t) values.push_back(SampleValues(step, rank, t));
    for (int t = 0; t < kSampleTensors; ++t) {
      tensors.push_back({absl::StrCat("rank", rank, ".tensor", t),
                         Dtype::kF32,
                         {static_cast<int64_t>(values[t].size())},
                         values[t].data()});
    }
    ASSIGN_OR_RETURN(ShardFile shard, writer.WriteShard(step, rank, kSampleWorld, tensors,
                                                        {{"step", absl::StrCat(step.value)}}));
    manifest.shards.push_back(std::move(shard));
  }
  return writer.Commit(manifest);
}

// OK if everything loaded is exactly WriteSample's of that step.
inline absl::Status CheckSample(const FoundCheckpoint& found) {
  const Step step = found.manifest.step;
  if (found.manifest.world_size != kSampleWorld || found.manifest.state != SampleState(step)) {
    return absl::DataLossError("manifest of another state");
  }
  for (int rank = 0; rank < kSampleWorld; ++rank) {
    ASSIGN_OR_RETURN(const SafetensorsFile file, LoadShard(found, rank));
    const std::vector<TensorView> tensors = file.tensors();
    if (tensors.size() != kSampleTensors) return absl::DataLossError("tensors are missing");
    for (int t = 0; t < kSampleTensors; ++t) {
      const std::vector<float> values = SampleValues(step, rank, t);
      if (std::memcmp(tensors[t].data, values.data(), values.size() * sizeof(float)) != 0) {
        return absl::DataLossError("values of another step");
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace trainctl

#endif  // TRAINCTL_TESTS_UNIT_CHECKPOINT_SAMPLE_CHECKPOINT_H_
