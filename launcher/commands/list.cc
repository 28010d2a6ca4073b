#include <ctime>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "launcher/commands/commands.h"
#include "launcher/commands/exit_status.h"
#include "launcher/console.h"
#include "launcher/job_client.h"
#include "launcher/job_lookup.h"
#include "runtime/base/places.h"

namespace trainctl {
namespace {

using Json = nlohmann::ordered_json;

struct Row {
  std::string id;
  std::string name;
  std::string state;  // a phase, an outcome, or "interrupted"
  int64_t step = 0;
  int64_t started_s = 0;
};

Row Look(const KnownJob& job) {
  Row row{job.id, job.id.substr(0, job.id.rfind('-')), "interrupted", 0, job.started_s};
  absl::StatusOr<ReportSeen> report = ReadReport(job);
  if (absl::IsDataLoss(report.status())) {
    row.state = "damaged";
    return row;
  }
  if (report.ok()) {
    row.name = report->name;
    row.step = report->steps;
    if (!report->outcome.empty()) {
      row.state = report->outcome;
      return row;
    }
  }
  if (!CoordinatorListens(job.id)) {
    return row;
  }
  absl::StatusOr<JobDescription> description = JobClient(JobSocket(job.id)).Describe(seconds(2));
  if (!description.ok()) {
    row.state = "not answering";
    return row;
  }
  row.name = description->name;
  row.state = JobPhaseName(description->view.phase);
  row.step = description->view.step.value;
  return row;
}

std::string LocalTime(int64_t seconds_since_1970) {
  const time_t time = seconds_since_1970;
  tm parts{};
  localtime_r(&time, &parts);
  char text[32] = {};
  strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S", &parts);
  return text;
}

}  // namespace

int RunList(const JobFlags& flags) {
  Console console;
  std::string out;
  if (!flags.json) {
    out =
        absl::StrFormat("%-40s %-20s %-12s %10s  %s\n", "JOB", "NAME", "STATE", "STEP", "STARTED");
  }
  for (const KnownJob& job : KnownJobs(StateFolder())) {
    const Row row = Look(job);
    if (flags.json) {
      const Json json = {{"schema", 1},
                         {"type", "job"},
                         {"job", row.id},
                         {"name", row.name},
                         {"state", row.state},
                         {"step", row.step},
                         {"started", row.started_s},
                         {"folder", job.folder}};
      absl::StrAppend(&out, json.dump(-1, ' ', false, Json::error_handler_t::replace), "\n");
    } else {
      absl::StrAppend(&out, absl::StrFormat("%-40s %-20s %-12s %10d  %s\n", row.id, row.name,
                                            row.state, row.step, LocalTime(row.started_s)));
    }
  }
  console.Out(out);
  return kExitDone;
}

}  // namespace trainctl
