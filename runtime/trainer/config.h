// What train-worker is told: the sections `train` and `checkpoint` of a job file, as JSON.
#ifndef TRAINCTL_RUNTIME_TRAINER_CONFIG_H_
#define TRAINCTL_RUNTIME_TRAINER_CONFIG_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "runtime/trainer/dataset.h"
#include "runtime/trainer/device_choice.h"
#include "runtime/trainer/model.h"
#include "runtime/trainer/optimizer.h"
#include "runtime/trainer/precision.h"
#include "runtime/trainer/schedule.h"

namespace trainctl {

struct ModelConfig {
  enum class Kind { kMlp, kGpt };
  Kind kind = Kind::kMlp;
  std::vector<int64_t> hidden = {512, 256};  // mlp
  int64_t layers = 4;                        // gpt, from here
  int64_t width = 128;
  int64_t heads = 4;
  int64_t context = 128;
  double dropout = 0;
  bool recompute = false;  // gpt on a GPU: activations are computed again rather than kept
};

struct TrainConfig {
  ModelConfig model;
  DataOptions data;  // its context is the model's
  OptimizerOptions optimizer;
  Schedule schedule;  // total_steps is filled in when the data is known
  double clip = 0;    // largest global norm of the gradients; 0: not clipped
  int64_t global_batch = 0;
  int64_t micro_batch = 0;       // samples at a time on one worker; 0: its whole share
  std::optional<int64_t> steps;  // one of the two is given
  std::optional<double> passes;  // over the data ("epochs" in the file)
  Device device = Device::kAuto;
  Precision precision = Precision::kAuto;
  uint64_t seed = 1;
  int64_t drift_check_every = 100;  // steps; 0: never
  std::string checkpoint_folder;    // empty: none are written
  int64_t checkpoint_every = 200;   // steps
  int checkpoint_keep = 3;
  std::string plan_file;  // bucket plan to use: its JSON, or a manifest that holds one; empty: none
  std::string text;       // the configuration as given, compact
};

// An unknown key, a wrong type or a value out of range is INVALID_ARGUMENT and names the key.
absl::StatusOr<TrainConfig> ParseTrainConfig(absl::string_view json);

// INVALID_ARGUMENT if the model cannot be trained on such data.
absl::StatusOr<std::unique_ptr<Model>> MakeModel(const TrainConfig& config, const OpenedData& data);

}  // namespace trainctl

#endif  // TRAINCTL_RUNTIME_TRAINER_CONFIG_H_
