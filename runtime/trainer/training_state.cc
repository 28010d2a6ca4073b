#include "runtime/trainer/training_state.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "runtime/base/file.h"
#include "runtime/base/status.h"
#include "runtime/json/json_text.h"

namespace trainctl {
namespace {

using nlohmann::json;

constexpr char kRemedy[] = "; give this run another checkpoint folder";

// A whole number ≥ 0 at state[section][key]; -1 if there is none.
int64_t NumberAt(const json& state, const char* section, const char* key) {
  const auto part = state.find(section);
  if (part == state.end() || !part->is_object()) return -1;
  const auto found = part->find(key);
  return found != part->end() && found->is_number_integer() ? found->get<int64_t>() : -1;
}

}  // namespace

std::vector<int> AssignToRanks(const std::vector<StateTensor>& tensors, int world_size) {
  std::vector<size_t> order(tensors.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return tensors[a].size > tensors[b].size; });
  std::vector<int64_t> load(static_cast<size_t>(world_size), 0);
  std::vector<int> rank_of(tensors.size(), 0);
  for (size_t t : order) {
    const auto least = std::min_element(load.begin(), load.end());
    rank_of[t] = static_cast<int>(least - load.begin());
    *least += tensors[t].size;
  }
  return rank_of;
}

std::vector<TensorView> ShardOf(const std::vector<StateTensor>& tensors, int rank, int world_size) {
  const std::vector<int> rank_of = AssignToRanks(tensors, world_size);
  std::vector<TensorView> views;
  for (size_t t = 0; t < tensors.size(); ++t) {
    if (rank_of[t] != rank) continue;
    views.push_back({tensors[t].name, Dtype::kF32, tensors[t].shape, tensors[t].data});
  }
  return views;
}

absl::Status LoadTensors(const FoundCheckpoint& checkpoint,
                         const std::vector<StateTensor>& tensors) {
  std::map<absl::string_view, const StateTensor*> missing;
  for (const StateTensor& tensor : tensors) missing[tensor.name] = &tensor;
  for (int rank = 0; rank < checkpoint.manifest.world_size; ++rank) {
    ASSIGN_OR_RETURN(const SafetensorsFile shard, LoadShard(checkpoint, rank));
    for (const TensorView& view : shard.tensors()) {
      const auto found = missing.find(view.name);
      if (found == missing.end()) {
        return absl::FailedPreconditionError(
            absl::StrCat(checkpoint.path, ": tensor ", view.name,
                         " is not one of this model and optimizer, or is there twice", kRemedy));
      }
      const StateTensor& tensor = *found->second;
      if (view.dtype != Dtype::kF32 || view.shape != tensor.shape) {
        return absl::FailedPreconditionError(
            absl::StrCat(checkpoint.path, ": tensor ", view.name, " is ", DtypeName(view.dtype),
                         " [", absl::StrJoin(view.shape, ", "), "], this model's is F32 [",
                         absl::StrJoin(tensor.shape, ", "), "]", kRemedy));
      }
      std::memcpy(tensor.data, view.data, static_cast<size_t>(tensor.size) * sizeof(float));
      missing.erase(found);
    }
  }
  if (!missing.empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat(checkpoint.path, ": tensor ", missing.begin()->first,
                     " of this model and optimizer is not there", kRemedy));
  }
  return absl::OkStatus();
}

std::string FormatProgress(const Progress& progress) {
  json state = {{"samples", progress.samples},
                {"sampler",
                 {{"pass", progress.position.pass},
                  {"offset", progress.position.offset},
                  {"data_samples", progress.data_samples}}},
                // Every stream is a pure function of seed, purpose and counter, so the seed and the
                // step are the whole state of the random numbers.
                {"random", {{"algorithm", "philox4x32-10"}, {"seed", progress.seed}}},
                {"config", ParseJson(progress.config)}};
  if (progress.update.loss_scale > 0) {
    state["float16"] = {{"updates", progress.update.updates},
                        {"loss_scale", progress.update.loss_scale},
                        {"good_steps", progress.update.good_steps}};
  }
  if (!progress.bucket_plan.empty()) {
    state["bucket_plan"] = ParseJson(progress.bucket_plan);
  }
  return JsonText(state);
}

absl::StatusOr<Progress> ParseProgress(absl::string_view text, uint64_t seed,
                                       int64_t data_samples) {
  const json state = ParseJson(text);
  const auto samples = state.is_object() ? state.find("samples") : state.end();
  Progress progress;
  progress.position.pass = NumberAt(state, "sampler", "pass");
  progress.position.offset = NumberAt(state, "sampler", "offset");
  progress.data_samples = NumberAt(state, "sampler", "data_samples");
  const int64_t found_seed = NumberAt(state, "random", "seed");
  if (samples == state.end() || !samples->is_number_integer() || samples->get<int64_t>() < 0 ||
      progress.position.pass < 0 || progress.position.offset < 0 || found_seed < 0 ||
      progress.position.offset >= progress.data_samples) {
    return absl::DataLossError("the training state in the manifest is not complete");
  }
  progress.samples = samples->get<int64_t>();
  progress.seed = static_cast<uint64_t>(found_seed);
  if (progress.data_samples != data_samples) {
    return absl::FailedPreconditionError(
        absl::StrCat("the checkpoint is of a run over ", progress.data_samples,
                     " samples, this data has ", data_samples, kRemedy));
  }
  if (progress.seed != seed) {
    return absl::FailedPreconditionError(absl::StrCat("the checkpoint is of a run with seed ",
                                                      progress.seed, ", this one has ", seed,
                                                      kRemedy, " or the same seed"));
  }
  if (const auto part = state.find("float16"); part != state.end() && part->is_object()) {
    progress.update.updates = NumberAt(state, "float16", "updates");
    progress.update.good_steps = NumberAt(state, "float16", "good_steps");
    const auto scale = part->find("loss_scale");
    if (scale == part->end() || !scale->is_number() || !(scale->get<double>() > 0) ||
        progress.update.updates < 0 || progress.update.good_steps < 0) {
      return absl::DataLossError("the loss scale in the manifest is not complete");
    }
    progress.update.loss_scale = scale->get<double>();
  }
  if (const auto plan = state.find("bucket_plan"); plan != state.end()) {
    progress.bucket_plan = JsonText(*plan);
  }
  return progress;
}

absl::StatusOr<std::string> ReadPlanFile(const std::string& path) {
  absl::StatusOr<std::string> text = ReadFile(path, size_t{64} << 20);
  if (!text.ok()) {
    return absl::Status(text.status().code(),
                        absl::StrCat("read the bucket plan: ", text.status().message()));
  }
  if (const absl::StatusOr<Manifest> manifest = ParseManifest(*text); manifest.ok()) {
    const json state = ParseJson(manifest->state);
    if (const auto plan = state.find("bucket_plan"); plan != state.end()) return JsonText(*plan);
    return absl::InvalidArgumentError(absl::StrCat(path, ": this checkpoint has no bucket plan"));
  }
  return text;
}

}  // namespace trainctl
