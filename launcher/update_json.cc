#include "launcher/update_json.h"

#include <nlohmann/json.hpp>
#include <variant>

#include "runtime/base/check.h"

namespace trainctl {
namespace {

using Json = nlohmann::ordered_json;

Json Object(const char* type) { return Json{{"schema", 1}, {"type", type}}; }

// Bytes that are not UTF-8 come out as U+FFFD: JSON has no others.
std::string Line(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

const char* LevelName(Announce::Level level) {
  switch (level) {
    case Announce::Level::kInfo:
      return "info";
    case Announce::Level::kWarning:
      return "warning";
    case Announce::Level::kError:
      return "error";
  }
  return "info";
}

Json WorkerJson(const WorkerState& worker) {
  Json json = {{"rank", worker.rank},
               {"local_rank", worker.local_rank},
               {"pid", worker.pid},
               {"running", worker.running}};
  if (!worker.running) {
    const bool signalled = worker.exit.kind == WorkerExit::Kind::kSignaled;
    json[signalled ? "signal" : "code"] = worker.exit.code;
  }
  return json;
}

struct ToJson {
  Json operator()(const JobDescription& job) const {
    Json json = Object("job");
    json["job"] = job.job_id;
    json["name"] = job.name;
    json["phase"] = JobPhaseName(job.view.phase);
    json["explain"] = job.view.explain;
    json["term"] = job.view.term.value;
    json["epoch"] = job.view.epoch.value;
    json["world_size"] = job.view.world_size;
    json["restarts"] = job.view.restarts;
    json["step"] = job.view.step.value;
    json["total_steps"] = job.view.total_steps.value;
    json["recovery_point"] =
        job.view.recovery_point.value < 0 ? Json() : Json(job.view.recovery_point.value);
    json["coordinator_pid"] = job.coordinator_pid;
    json["job_folder"] = job.job_folder;
    json["log_folder"] = job.log_folder;
    json["checkpoint_folder"] = job.checkpoint_folder;
    json["workers"] = Json::array();
    for (const WorkerState& worker : job.workers) {
      json["workers"].push_back(WorkerJson(worker));
    }
    return json;
  }
  Json operator()(const Announce& announce) const {
    Json json = Object("message");
    json["level"] = LevelName(announce.level);
    json["text"] = announce.text;
    return json;
  }
  Json operator()(const OutputBytes&) const {
    CHECK(false);  // whole lines are LineJson's
    return Json();
  }
  Json operator()(const ProgressSeen& progress) const {
    Json json = Object("progress");
    json["epoch"] = progress.epoch.value;
    json["step"] = progress.step;
    json["total_steps"] = progress.total_steps;
    json["samples"] = progress.samples;
    json["samples_per_second"] = progress.samples_per_second;
    json["loss"] = progress.loss;
    json["data_epoch"] = progress.data_epoch;
    return json;
  }
  Json operator()(const MetricSeen& metric) const {
    Json json = Object("metric");
    json["epoch"] = metric.epoch.value;
    json["name"] = metric.name;
    json["value"] = metric.value;
    return json;
  }
  Json operator()(const NoteSeen& note) const {
    Json json = Object("note");
    json["epoch"] = note.epoch.value;
    json["rank"] = note.rank;
    json["text"] = note.text;
    return json;
  }
  Json operator()(const JobEnded& end) const {
    Json json = Object("end");
    json["outcome"] = end.outcome;
    json["exit_status"] = end.exit_status;
    json["reason"] = end.reason;
    json["report"] = end.report_path;
    return json;
  }
};

}  // namespace

std::string UpdateJson(const JobUpdate& update) { return Line(std::visit(ToJson{}, update)); }

std::string LineJson(int64_t epoch, int rank, int stream, absl::string_view line) {
  Json json = Object("output");
  json["epoch"] = epoch;
  json["rank"] = rank;
  json["stream"] = stream == 2 ? "stderr" : "stdout";
  json["line"] = std::string(line);
  return Line(json);
}

std::string DescriptionJson(const JobDescription& job) { return Line(ToJson{}(job)); }

}  // namespace trainctl
