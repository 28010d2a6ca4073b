#include "absl/strings/str_cat.h"
#include "launcher/commands/commands.h"
#include "launcher/commands/exit_status.h"
#include "launcher/console.h"
#include "launcher/job_client.h"
#include "launcher/job_lookup.h"
#include "launcher/progress_text.h"
#include "launcher/update_json.h"
#include "runtime/base/places.h"

namespace trainctl {
namespace {

std::string StepText(const JobView& view) {
  if (view.step.value == 0 && view.total_steps.value == 0) {
    return "no step was reported";
  }
  std::string text = absl::StrCat("step ", view.step.value);
  if (view.total_steps.value > 0) {
    absl::StrAppend(&text, " of ", view.total_steps.value);
  }
  if (view.recovery_point.value >= 0) {
    absl::StrAppend(&text, ", recovery point step ", view.recovery_point.value);
  }
  return text;
}

std::string NodeOf(const JobView& view, int rank) {
  for (const RankPlace& place : view.ranks) {
    if (place.rank == rank) {
      return place.node;
    }
  }
  return "?";
}

std::string DescriptionText(const JobDescription& job) {
  std::string text =
      absl::StrCat("job          ", job.job_id, " (", job.name, ")\n", "phase        ",
                   JobPhaseName(job.view.phase), ", epoch ", job.view.epoch.value, ", ",
                   CountText(job.view.restarts, "restart"), "\n", "now          ", job.view.explain,
                   "\n", "progress     ", StepText(job.view), "\n");
  for (const WorkerState& worker : job.workers) {
    absl::StrAppend(&text, "rank ", worker.rank, "       ", NodeOf(job.view, worker.rank), " pid ",
                    worker.pid, " ");
    if (worker.running) {
      absl::StrAppend(&text, "running\n");
    } else if (worker.exit.kind == WorkerExit::Kind::kSignaled) {
      absl::StrAppend(&text, "ended by signal ", worker.exit.code, "\n");
    } else {
      absl::StrAppend(&text, "ended with ", worker.exit.code, "\n");
    }
  }
  absl::StrAppend(&text, "logs         ", job.log_folder, "\n");
  if (!job.checkpoint_folder.empty()) {
    absl::StrAppend(&text, "checkpoints  ", job.checkpoint_folder, "\n");
  }
  return text;
}

int ShowOver(const KnownJob& job, bool json, Console* console) {
  absl::StatusOr<ReportSeen> report = ReadReport(job);
  if (!report.ok()) {
    return Fail(report.status());
  }
  if (json) {
    console->Out(
        JobJson({job.id, report->name, report->outcome, report->steps, job.started_s, job.folder},
                *report, ReportPath(job)));
    return kExitDone;
  }
  console->Out(absl::StrCat(
      "job          ", job.id, " (", report->name, ")\n", "phase        over, ", report->outcome,
      ", ", CountText(report->restarts, "restart"), "\n", "reason       ", report->reason, "\n",
      report->steps > 0 ? absl::StrCat("progress     step ", report->steps, "\n") : "",
      "logs         ", report->log_folder, "\n", "report       ", ReportPath(job), "\n"));
  return kExitDone;
}

}  // namespace

int RunStatus(const JobFlags& flags) {
  absl::StatusOr<KnownJob> job = FindJob(StateFolder(), flags.job);
  if (!job.ok()) {
    return Fail(job.status());
  }
  Console console;
  if (IsOver(*job)) {
    return ShowOver(*job, flags.json, &console);
  }
  absl::StatusOr<JobDescription> description = JobClient(JobSocket(job->id)).Describe();
  if (!description.ok()) {
    return Fail(absl::Status(description.status().code(),
                             absl::StrCat("job ", job->id, " has no coordinator that answers: ",
                                          description.status().message(), "; trainctl resume ",
                                          job->id, " takes it over")));
  }
  JobLine line = LineOf(*description);
  line.started_s = job->started_s;
  console.Out(flags.json ? JobJson(line, *description) : DescriptionText(*description));
  return kExitDone;
}

}  // namespace trainctl
