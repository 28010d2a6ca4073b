#include "runtime/trainer/config.h"

#include <cmath>
#include <limits>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "runtime/base/status.h"
#include "runtime/json/json_text.h"
#include "runtime/trainer/gpt.h"
#include "runtime/trainer/mlp.h"

namespace trainctl {
namespace {

using nlohmann::json;

constexpr int64_t kMaxSteps = 1'000'000'000;

// Takes the known members of one object and remembers the first thing that is wrong.
class ObjectReader {
 public:
  ObjectReader(const json& value, std::string path, absl::Status* error)
      : value_(value), path_(std::move(path)), error_(error) {
    if (!value.is_object()) Fail(path_, "must be an object");
  }
  ~ObjectReader() {
    if (!value_.is_object()) return;
    for (const auto& [key, unused] : value_.items()) {
      if (!known_.count(key)) {
        Fail(Path(key), absl::StrCat("is not known; known here: ", absl::StrJoin(known_, ", ")));
      }
    }
  }
  ObjectReader(const ObjectReader&) = delete;
  ObjectReader& operator=(const ObjectReader&) = delete;

  void Integer(const char* key, int64_t low, int64_t high, int64_t* out) {
    const json* found = Find(key);
    if (found == nullptr) return;
    // An unsigned number above int64's range would turn negative in get().
    if (!found->is_number_integer() || found->get<int64_t>() < low ||
        found->get<int64_t>() > high) {
      return Fail(Path(key), absl::StrCat("must be a whole number from ", low, " to ", high));
    }
    *out = found->get<int64_t>();
  }
  void Number(const char* key, double low, double high, double* out) {
    const json* found = Find(key);
    if (found == nullptr) return;
    if (!found->is_number() || !(found->get<double>() >= low) || found->get<double>() > high) {
      return Fail(Path(key), absl::StrCat("must be a number from ", low, " to ", high));
    }
    *out = found->get<double>();
  }
  void Text(const char* key, std::string* out) {
    const json* found = Find(key);
    if (found == nullptr) return;
    if (!found->is_string()) return Fail(Path(key), "must be a string");
    *out = found->get<std::string>();
  }
  template <typename Value>
  void Word(const char* key, const std::vector<std::pair<const char*, Value>>& words, Value* out) {
    const json* found = Find(key);
    if (found == nullptr) return;
    std::vector<std::string> names;
    for (const auto& [name, value] : words) {
      if (found->is_string() && found->get<std::string>() == name) {
        *out = value;
        return;
      }
      names.push_back(name);
    }
    Fail(Path(key), absl::StrCat("must be one of: ", absl::StrJoin(names, ", ")));
  }
  void Flag(const char* key, bool* out) {
    const json* found = Find(key);
    if (found == nullptr) return;
    if (!found->is_boolean()) return Fail(Path(key), "must be true or false");
    *out = found->get<bool>();
  }
  void Integers(const char* key, int64_t low, int64_t high, std::vector<int64_t>* out) {
    const json* found = Find(key);
    if (found == nullptr) return;
    std::vector<int64_t> values;
    bool right = found->is_array();
    for (size_t i = 0; right && i < found->size(); ++i) {
      const json& item = (*found)[i];
      right = item.is_number_integer() && item.get<int64_t>() >= low && item.get<int64_t>() <= high;
      if (right) values.push_back(item.get<int64_t>());
    }
    if (!right) {
      return Fail(Path(key),
                  absl::StrCat("must be a list of whole numbers from ", low, " to ", high));
    }
    *out = std::move(values);
  }
  bool Has(const char* key) const { return value_.is_object() && value_.contains(key); }
  void Require(const char* key) {
    if (!Has(key)) Fail(Path(key), "is missing");
  }
  // The section under `key`; an empty one if it is absent.
  const json& Section(const char* key) {
    static const json kEmpty = json::object();
    const json* found = Find(key);
    return found == nullptr ? kEmpty : *found;
  }
  void Fail(const std::string& path, absl::string_view what) {
    if (error_->ok()) {
      *error_ =
          absl::InvalidArgumentError(absl::StrCat("training configuration: ", path, " ", what));
    }
  }
  std::string Path(const char* key) const {
    return path_.empty() ? key : absl::StrCat(path_, ".", key);
  }
  std::string Path(const std::string& key) const { return Path(key.c_str()); }

 private:
  const json* Find(const char* key) {
    known_.insert(key);
    return Has(key) ? &value_.at(key) : nullptr;
  }

  const json& value_;
  const std::string path_;
  absl::Status* error_;
  std::set<std::string> known_;
};

void ReadModel(const json& section, ModelConfig* model, absl::Status* error) {
  ObjectReader reader(section, "model", error);
  reader.Require("kind");
  reader.Word<ModelConfig::Kind>(
      "kind", {{"mlp", ModelConfig::Kind::kMlp}, {"gpt", ModelConfig::Kind::kGpt}}, &model->kind);
  reader.Number("dropout", 0, 0.99, &model->dropout);
  if (model->kind == ModelConfig::Kind::kMlp) {
    reader.Integers("hidden", 1, 1 << 20, &model->hidden);
    return;
  }
  reader.Integer("layers", 1, 1 << 10, &model->layers);
  reader.Integer("width", 1, 1 << 16, &model->width);
  reader.Integer("heads", 1, 1 << 12, &model->heads);
  reader.Integer("context", 1, 1 << 20, &model->context);
  reader.Flag("recompute", &model->recompute);
  if (model->width % model->heads != 0) {
    reader.Fail("model.width", absl::StrCat("(", model->width, ") must be a multiple of heads (",
                                            model->heads, ")"));
  }
}

void ReadData(const json& section, DataOptions* data, absl::Status* error) {
  ObjectReader reader(section, "data", error);
  reader.Require("kind");
  reader.Require("path");
  reader.Word<DataOptions::Kind>("kind",
                                 {{"fashion_mnist", DataOptions::Kind::kFashionMnist},
                                  {"text", DataOptions::Kind::kText},
                                  {"tokens", DataOptions::Kind::kTokens}},
                                 &data->kind);
  reader.Text("path", &data->path);
  if (data->kind != DataOptions::Kind::kFashionMnist) {
    reader.Number("validation", 1e-6, 0.9, &data->validation);
  }
}

void ReadOptimizer(const json& section, TrainConfig* config, absl::Status* error) {
  using Kind = OptimizerOptions::Kind;
  OptimizerOptions& optimizer = config->optimizer;
  ObjectReader reader(section, "optimizer", error);
  reader.Require("kind");
  reader.Word<Kind>("kind", {{"adamw", Kind::kAdamW}, {"sgd", Kind::kSgd}}, &optimizer.kind);
  reader.Number("lr", 0, 1000, &config->schedule.peak);
  reader.Number("weight_decay", 0, 1000, &optimizer.weight_decay);
  reader.Number("clip", 0, 1e9, &config->clip);
  if (optimizer.kind == Kind::kSgd) {
    reader.Number("momentum", 0, 0.9999999, &optimizer.momentum);
  } else {
    reader.Number("beta1", 0, 0.9999999, &optimizer.beta1);
    reader.Number("beta2", 0, 0.9999999, &optimizer.beta2);
    reader.Number("epsilon", 1e-30, 1, &optimizer.epsilon);
  }
  ObjectReader schedule(reader.Section("schedule"), "optimizer.schedule", error);
  schedule.Integer("warmup", 0, kMaxSteps, &config->schedule.warmup_steps);
  schedule.Word<Schedule::Decay>("decay",
                                 {{"constant", Schedule::Decay::kConstant},
                                  {"linear", Schedule::Decay::kLinear},
                                  {"cosine", Schedule::Decay::kCosine}},
                                 &config->schedule.decay);
  schedule.Number("floor", 0, 1, &config->schedule.floor);
}

void ReadLength(ObjectReader& reader, TrainConfig* config) {
  int64_t steps = 0;
  double passes = 0;
  reader.Integer("steps", 1, kMaxSteps, &steps);
  reader.Number("epochs", 1e-6, 1e6, &passes);
  if (reader.Has("steps") == reader.Has("epochs")) {
    reader.Fail("steps", "or epochs must be given, and not both");
  }
  if (reader.Has("steps")) config->steps = steps;
  if (reader.Has("epochs")) config->passes = passes;
}

void ReadCheckpoint(const json& section, TrainConfig* config, absl::Status* error) {
  ObjectReader reader(section, "checkpoint", error);
  int64_t keep = config->checkpoint_keep;
  reader.Text("dir", &config->checkpoint_folder);
  reader.Integer("every_steps", 1, kMaxSteps, &config->checkpoint_every);
  reader.Integer("keep", 1, 1'000'000, &keep);
  config->checkpoint_keep = static_cast<int>(keep);
}

void ReadBatch(const json& section, TrainConfig* config, absl::Status* error) {
  ObjectReader reader(section, "batch", error);
  reader.Require("global");
  reader.Integer("global", 1, 1 << 24, &config->global_batch);
  reader.Integer("micro", 1, 1 << 24, &config->micro_batch);
}

}  // namespace

absl::StatusOr<TrainConfig> ParseTrainConfig(absl::string_view text) {
  const json document = ParseJson(text);
  if (!document.is_object()) {
    return absl::InvalidArgumentError("training configuration: not a JSON object");
  }
  TrainConfig config;
  absl::Status error;
  {
    ObjectReader reader(document, "", &error);
    for (const char* key : {"model", "data", "optimizer", "batch"}) reader.Require(key);
    ReadModel(reader.Section("model"), &config.model, &error);
    ReadData(reader.Section("data"), &config.data, &error);
    ReadOptimizer(reader.Section("optimizer"), &config, &error);
    ReadBatch(reader.Section("batch"), &config, &error);
    ReadCheckpoint(reader.Section("checkpoint"), &config, &error);
    ReadLength(reader, &config);
    int64_t seed = 1;
    reader.Integer("seed", 0, std::numeric_limits<int64_t>::max(), &seed);
    config.seed = static_cast<uint64_t>(seed);
    reader.Integer("drift_check_every", 0, kMaxSteps, &config.drift_check_every);
    reader.Word<Device>("device",
                        {{"auto", Device::kAuto}, {"cpu", Device::kCpu}, {"cuda", Device::kCuda}},
                        &config.device);
    reader.Word<Precision>("precision",
                           {{"auto", Precision::kAuto},
                            {"fp32", Precision::kFp32},
                            {"tf32", Precision::kTf32},
                            {"bf16", Precision::kBf16},
                            {"fp16", Precision::kFp16}},
                           &config.precision);
    reader.Text("plan_in", &config.plan_file);
  }
  RETURN_IF_ERROR(error);
  config.data.context = config.model.context;
  config.text = JsonText(document);
  return config;
}

absl::StatusOr<std::unique_ptr<Model>> MakeModel(const TrainConfig& config,
                                                 const OpenedData& data) {
  const ModelConfig& model = config.model;
  const bool images = data.inputs > 0;
  if (images != (model.kind == ModelConfig::Kind::kMlp)) {
    return absl::InvalidArgumentError(
        images ? "model.kind gpt learns tokens, but the data holds images; use mlp, or other data"
               : "model.kind mlp learns images, but the data holds tokens; use gpt, or other data");
  }
  if (images) {
    return std::make_unique<Mlp>(MlpOptions{.inputs = data.inputs,
                                            .hidden = model.hidden,
                                            .classes = data.classes,
                                            .dropout = model.dropout,
                                            .seed = config.seed});
  }
  return std::make_unique<Gpt>(GptOptions{.layers = model.layers,
                                          .width = model.width,
                                          .heads = model.heads,
                                          .context = model.context,
                                          .vocabulary = data.classes,
                                          .dropout = model.dropout,
                                          .seed = config.seed});
}

}  // namespace trainctl
