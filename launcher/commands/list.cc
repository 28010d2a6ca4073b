#include <ctime>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "launcher/commands/commands.h"
#include "launcher/commands/exit_status.h"
#include "launcher/console.h"
#include "launcher/job_client.h"
#include "launcher/job_lookup.h"
#include "launcher/update_json.h"
#include "runtime/base/places.h"

namespace trainctl {
namespace {

JobLine Look(const KnownJob& job) {
  JobLine line{job.id,    job.id.substr(0, job.id.rfind('-')), "interrupted", 0, job.started_s,
               job.folder};
  absl::StatusOr<ReportSeen> report = ReadReport(job);
  if (absl::IsDataLoss(report.status())) {
    line.state = "damaged";
    return line;
  }
  if (report.ok()) {
    line.name = report->name;
    line.step = report->steps;
    if (!report->outcome.empty()) {
      line.state = report->outcome;
      return line;
    }
  }
  if (!CoordinatorListens(job.id)) {
    return line;
  }
  absl::StatusOr<JobDescription> description = JobClient(JobSocket(job.id)).Describe(seconds(2));
  if (!description.ok()) {
    line.state = "not answering";
    return line;
  }
  line = LineOf(*description);
  line.started_s = job.started_s;
  return line;
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
  absl::StatusOr<std::vector<KnownJob>> jobs = KnownJobs(StateFolder());
  if (!jobs.ok()) {
    return Fail(jobs.status());
  }
  Console console;
  std::string out;
  if (!flags.json) {
    out =
        absl::StrFormat("%-40s %-20s %-13s %10s  %s\n", "JOB", "NAME", "STATE", "STEP", "STARTED");
  }
  for (const KnownJob& job : *jobs) {
    const JobLine line = Look(job);
    if (flags.json) {
      out += JobJson(line);
      continue;
    }
    // A program that reports no steps is not at its beginning for ever.
    const std::string step = line.step > 0 ? absl::StrCat(line.step) : "-";
    absl::StrAppend(&out, absl::StrFormat("%-40s %-20s %-13s %10s  %s\n", line.job, line.name,
                                          line.state, step, LocalTime(line.started_s)));
  }
  if (jobs->empty() && !flags.json) {
    console.Err(absl::StrCat("trainctl: no jobs yet in ", StateFolder(),
                             "/jobs; trainctl launch starts one\n"));
  }
  console.Out(out);
  return kExitDone;
}

}  // namespace trainctl
