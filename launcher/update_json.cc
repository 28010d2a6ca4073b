#include "launcher/update_json.h"

#include <variant>

#include "runtime/base/check.h"
#include "runtime/json/json_text.h"

namespace trainctl {
namespace {

using Json = nlohmann::ordered_json;

Json Object(const char* type) { return Json{{"schema", 1}, {"type", type}}; }

// Bytes that are not UTF-8 come out as U+FFFD: JSON has no others.
std::string Line(const Json& json) { return JsonText(json) + "\n"; }

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

Json CoreOf(const JobLine& line) {
  Json json = Object("job");
  json["job"] = line.job;
  json["name"] = line.name;
  json["state"] = line.state;
  json["step"] = line.step;
  if (line.started_s > 0) json["started"] = line.started_s;
  json["job_folder"] = line.job_folder;
  return json;
}

void AddDescription(const JobDescription& job, Json* target) {
  Json& json = *target;
  json["explain"] = job.view.explain;
  json["term"] = job.view.term.value;
  json["epoch"] = job.view.epoch.value;
  json["world_size"] = job.view.world_size;
  json["restarts"] = job.view.restarts;
  json["total_steps"] = job.view.total_steps.value;
  json["recovery_point"] =
      job.view.recovery_point.value < 0 ? Json() : Json(job.view.recovery_point.value);
  json["coordinator_pid"] = job.coordinator_pid;
  json["log_folder"] = job.log_folder;
  json["checkpoint_folder"] = job.checkpoint_folder;
  json["workers"] = Json::array();
  for (const WorkerState& worker : job.workers) {
    json["workers"].push_back(WorkerJson(worker));
  }
}

struct ToJson {
  Json operator()(const JobDescription& job) const {
    Json json = CoreOf(LineOf(job));
    AddDescription(job, &json);
    return json;
  }
  Json operator()(const Announce& announce) const {
    Json json = Object("message");
    json["level"] = LevelName(announce.level);
    json["text"] = announce.text;
    return json;
  }
  Json operator()(const OutputBatch&) const {
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

JobLine LineOf(const JobDescription& job) {
  return JobLine{job.job_id,          job.name, JobPhaseName(job.view.phase),
                 job.view.step.value, 0,        job.job_folder};
}

std::string JobJson(const JobLine& line) { return Line(CoreOf(line)); }

std::string JobJson(const JobLine& line, const JobDescription& job) {
  Json json = CoreOf(line);
  AddDescription(job, &json);
  return Line(json);
}

std::string JobJson(const JobLine& line, const ReportSeen& report, absl::string_view report_path) {
  Json json = CoreOf(line);
  json["restarts"] = report.restarts;
  json["exit_status"] = report.exit_status;
  json["reason"] = report.reason;
  json["report"] = std::string(report_path);
  return Line(json);
}

std::string NodeJson(absl::string_view job, const NodeView& node) {
  Json json = Object("node");
  json["job"] = std::string(job);
  json["node"] = node.node;
  json["standing"] = NodeStandingName(node.standing);
  json["address"] = node.address;
  json["slots"] = node.slots;
  json["workers"] = node.workers;
  json["reason"] = node.reason;
  return Line(json);
}

std::string ErrorJson(int exit_status, absl::string_view message) {
  Json json = Object("error");
  json["exit_status"] = exit_status;
  json["message"] = std::string(message);
  return Line(json);
}

}  // namespace trainctl
