#include "launcher/job_file.h"

#include <sys/stat.h>

#include <cmath>
#include <limits>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "launcher/yaml_reader.h"
#include "runtime/base/file.h"
#include "runtime/base/status.h"
#include "runtime/json/json_text.h"

namespace trainctl {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kMost = 1'000'000'000;

template <typename Value>
void Put(Json* json, const char* key, const std::optional<Value>& value) {
  if (value.has_value()) {
    (*json)[key] = *value;
  }
}

Json ReadModel(YamlReader model) {
  Json json;
  model.Require("kind", "mlp or gpt");
  const std::optional<std::string> kind = model.Word("kind", {"mlp", "gpt"});
  Put(&json, "kind", kind);
  Put(&json, "dropout", model.Number("dropout", 0, 0.99));
  if (kind == "mlp") {
    Put(&json, "hidden", model.Integers("hidden", 1, 1 << 20));
  } else if (kind == "gpt") {
    const std::optional<int64_t> width = model.Integer("width", 1, 1 << 16);
    const std::optional<int64_t> heads = model.Integer("heads", 1, 1 << 12);
    Put(&json, "layers", model.Integer("layers", 1, 1 << 10));
    Put(&json, "width", width);
    Put(&json, "heads", heads);
    Put(&json, "context", model.Integer("context", 1, 1 << 20));
    if (const std::optional<std::string> word = model.Word("recompute", {"true", "false"})) {
      json["recompute"] = *word == "true";
    }
    if (width.has_value() && heads.has_value() && *width % *heads != 0) {
      model.Problem("width",
                    absl::StrCat("(", *width, ") must be a multiple of heads (", *heads, ")"));
    }
  }
  if (kind.has_value()) {
    model.RefuseUnknownKeys();
  }
  return json;
}

Json ReadData(YamlReader data) {
  Json json;
  data.Require("kind", "fashion_mnist, text or tokens");
  data.Require("path", "the file or folder that holds the data");
  const std::optional<std::string> kind = data.Word("kind", {"fashion_mnist", "text", "tokens"});
  Put(&json, "kind", kind);
  Put(&json, "path", data.Text("path"));
  if (kind.has_value()) {
    if (kind != "fashion_mnist") {
      Put(&json, "validation", data.Number("validation", 1e-6, 0.9));
    }
    data.RefuseUnknownKeys();
  }
  return json;
}

Json ReadOptimizer(YamlReader optimizer) {
  Json json;
  optimizer.Require("kind", "adamw or sgd");
  const std::optional<std::string> kind = optimizer.Word("kind", {"adamw", "sgd"});
  Put(&json, "kind", kind);
  Put(&json, "lr", optimizer.Number("lr", 0, 1000));
  Put(&json, "weight_decay", optimizer.Number("weight_decay", 0, 1000));
  Put(&json, "clip", optimizer.Number("clip", 0, 1e9));
  if (kind == "sgd") {
    Put(&json, "momentum", optimizer.Number("momentum", 0, 0.9999999));
  } else if (kind == "adamw") {
    Put(&json, "beta1", optimizer.Number("beta1", 0, 0.9999999));
    Put(&json, "beta2", optimizer.Number("beta2", 0, 0.9999999));
    Put(&json, "epsilon", optimizer.Number("epsilon", 1e-30, 1));
  }
  if (std::optional<YamlReader> schedule = optimizer.Map("schedule")) {
    Json& target = json["schedule"];
    target = Json::object();
    Put(&target, "warmup", schedule->Integer("warmup", 0, kMost));
    Put(&target, "decay", schedule->Word("decay", {"constant", "linear", "cosine"}));
    Put(&target, "floor", schedule->Number("floor", 0, 1));
    schedule->RefuseUnknownKeys();
  }
  if (kind.has_value()) {
    optimizer.RefuseUnknownKeys();
  }
  return json;
}

Json ReadBatch(YamlReader batch) {
  Json json;
  batch.Require("global", "the number of samples in a step, of all workers together");
  const std::optional<int64_t> global = batch.Integer("global", 1, 1 << 24);
  const std::optional<int64_t> micro = batch.Integer("micro", 1, 1 << 24);
  Put(&json, "global", global);
  Put(&json, "micro", micro);
  if (global.has_value() && micro.has_value() && *micro > *global) {
    batch.Problem("micro", absl::StrCat("(", *micro, ") is larger than global (", *global, ")"));
  }
  batch.RefuseUnknownKeys();
  return json;
}

std::string ReadTrain(YamlReader train) {
  Json json;
  train.Require("model", "such as model: {kind: mlp, hidden: [512, 256]}");
  train.Require("data", "such as data: {kind: text, path: book.txt}");
  train.Require("optimizer", "such as optimizer: {kind: adamw, lr: 1e-3}");
  train.Require("batch", "such as batch: {global: 256}");
  if (std::optional<YamlReader> model = train.Map("model")) {
    json["model"] = ReadModel(*model);
  }
  if (std::optional<YamlReader> data = train.Map("data")) {
    json["data"] = ReadData(*data);
  }
  if (std::optional<YamlReader> optimizer = train.Map("optimizer")) {
    json["optimizer"] = ReadOptimizer(*optimizer);
  }
  if (std::optional<YamlReader> batch = train.Map("batch")) {
    json["batch"] = ReadBatch(*batch);
  }
  const std::optional<int64_t> steps = train.Integer("steps", 1, kMost);
  const std::optional<double> epochs = train.Number("epochs", 1e-6, 1e6);
  if (steps.has_value() && epochs.has_value()) {
    train.Problem("epochs", "and train.steps are both given; give one of them");
  } else if (!epochs.has_value() && !steps.has_value()) {
    train.Problem("steps", "or train.epochs is missing; it says how long to train");
  }
  Put(&json, "steps", steps);
  Put(&json, "epochs", epochs);
  Put(&json, "device", train.Word("device", {"auto", "cpu", "cuda"}));
  Put(&json, "precision", train.Word("precision", {"auto", "fp32", "tf32", "bf16", "fp16"}));
  Put(&json, "seed", train.Integer("seed", 0, std::numeric_limits<int64_t>::max()));
  Put(&json, "drift_check_every", train.Integer("drift_check_every", 0, kMost));
  train.RefuseUnknownKeys();
  return JsonText(json);
}

void ReadNodes(YamlReader nodes, JobFile* job) {
  const std::optional<int64_t> min = nodes.Integer("min", 1, kMaxNodes);
  const std::optional<int64_t> max = nodes.Integer("max", 1, kMaxNodes);
  if (min.has_value() && max.has_value() && *max < *min) {
    nodes.Problem("max", "must not be less than min");
  }
  if (min.has_value() || max.has_value()) {
    job->nnodes =
        absl::StrCat(min.value_or(*std::max(min, max)), ":", max.value_or(min.value_or(1)));
  }
  if (const std::optional<int64_t> spares = nodes.Integer("spares", 0, kMaxNodes)) {
    job->spares = absl::StrCat(*spares);
  }
  job->hosts = nodes.Text("hosts");
  job->workers = nodes.Text("workers");
  nodes.RefuseUnknownKeys();
}

void ReadCheckpoint(YamlReader checkpoint, JobFile* job) {
  job->checkpoint_dir = checkpoint.Text("dir");
  if (std::optional<std::string> every = checkpoint.Text("every")) {
    absl::StatusOr<int64_t> steps = ParseSteps(*every);
    if (steps.ok()) {
      job->checkpoint_every = *steps;
    } else {
      checkpoint.Problem("every", absl::StrCat(": ", steps.status().message()));
    }
  }
  if (std::optional<int64_t> keep = checkpoint.Integer("keep", 1, 1'000'000)) {
    job->checkpoint_keep = static_cast<int>(*keep);
  }
  checkpoint.RefuseUnknownKeys();
}

void ReadRestart(YamlReader restart, JobFile* job) {
  if (std::optional<int64_t> max = restart.Integer("max", 0, 1'000'000)) {
    job->max_restarts = static_cast<int>(*max);
  }
  if (std::optional<std::string> window = restart.Text("window")) {
    absl::StatusOr<RestartWindow> parsed = ParseRestartWindow(*window);
    if (parsed.ok()) {
      job->restart_window = *parsed;
    } else {
      restart.Problem("window", absl::StrCat(": ", parsed.status().message()));
    }
  }
  restart.RefuseUnknownKeys();
}

void ReadLimits(YamlReader limits, JobFile* job) {
  if (std::optional<std::string> memory = limits.Text("memory")) {
    absl::StatusOr<uint64_t> bytes = ParseSize(*memory);
    if (bytes.ok()) {
      job->memory_limit = *bytes;
    } else {
      limits.Problem("memory", absl::StrCat(": ", bytes.status().message()));
    }
  }
  if (std::optional<std::string> logs = limits.Text("logs")) {
    absl::StatusOr<uint64_t> bytes = ParseQuota(*logs);
    if (bytes.ok()) {
      job->log_quota = *bytes;
    } else {
      limits.Problem("logs", absl::StrCat(": ", bytes.status().message()));
    }
  }
  if (std::optional<int64_t> processes = limits.Integer("processes", 1, kMostProcesses)) {
    job->process_limit = static_cast<uint64_t>(*processes);
  }
  limits.RefuseUnknownKeys();
}

void ReadEnv(YamlReader env, JobFile* job) {
  job->env = env.AllTexts();
  for (const auto& [name, value] : job->env) {
    if (name.empty() || absl::StrContains(name, "=")) {
      env.Problem(name.c_str(), "is no name of an environment variable");
    }
  }
}

}  // namespace

absl::StatusOr<JobFile> ParseJobFile(const std::string& text, absl::string_view file) {
  ASSIGN_OR_RETURN(const YamlNode root, ParseYaml(text, file));
  if (root.kind == YamlNode::Kind::kNull) {
    return absl::InvalidArgumentError(absl::StrCat(
        file, ": holds nothing; it has to say what to run: command: [PROGRAM, …], or train: {…}"));
  }
  YamlProblem problem{std::string(file)};
  JobFile job;
  YamlReader reader(root, "", &problem);
  job.name = reader.Text("name");
  if (std::optional<YamlReader> nodes = reader.Map("nodes")) {
    ReadNodes(*nodes, &job);
  }
  const std::optional<std::vector<std::string>> command = reader.Texts("command");
  std::optional<YamlReader> train = reader.Map("train");
  if (command.has_value() && train.has_value()) {
    reader.Problem("train", "and command are both given; give one of them");
  } else if (command.has_value() && command->empty()) {
    reader.Problem("command", "must not be empty");
  } else if (command.has_value()) {
    job.command = *command;
  } else if (train.has_value()) {
    job.train = ReadTrain(*train);
  }
  if (std::optional<YamlReader> checkpoint = reader.Map("checkpoint")) {
    ReadCheckpoint(*checkpoint, &job);
  }
  if (std::optional<YamlReader> restart = reader.Map("restart")) {
    ReadRestart(*restart, &job);
  }
  job.preemptible = reader.Word("preemptible", {"true", "false"}) == "true";
  if (std::optional<YamlReader> limits = reader.Map("limits")) {
    ReadLimits(*limits, &job);
  }
  if (std::optional<YamlReader> env = reader.Map("env")) {
    ReadEnv(*env, &job);
  }
  reader.RefuseUnknownKeys();
  if (!command.has_value() && !train.has_value()) {
    reader.Problem("command", "or train is missing: it says what to run");
  }
  RETURN_IF_ERROR(problem.status());
  return job;
}

absl::StatusOr<JobFile> ReadJobFile(const std::string& path) {
  struct stat found {};
  // A pipe would be waited for, a device read without end.
  if (stat(path.c_str(), &found) == 0 && !S_ISREG(found.st_mode)) {
    return absl::InvalidArgumentError(
        absl::StrCat("cannot read the job file: ", path, " is ",
                     S_ISDIR(found.st_mode) ? "a folder" : "a pipe or device", ", not a file"));
  }
  absl::StatusOr<std::string> text = ReadFile(path, kLargestYaml);
  if (!text.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("cannot read the job file: ", text.status().message()));
  }
  return ParseJobFile(*text, path);
}

}  // namespace trainctl
