#include "absl/strings/str_cat.h"
#include "launcher/commands/commands.h"
#include "launcher/commands/exit_status.h"
#include "launcher/console.h"
#include "launcher/job_client.h"
#include "launcher/job_lookup.h"
#include "launcher/update_json.h"
#include "runtime/base/places.h"

namespace trainctl {
namespace {

std::string StepText(const JobView& view) {
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
                   job.view.restarts, " restarts\n", "now          ", job.view.explain, "\n",
                   "progress     ", StepText(job.view), "\n");
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
    console->Out(UpdateJson(
        JobEnded{report->outcome, report->exit_status, report->reason, ReportPath(job), ""}));
    return kExitDone;
  }
  console->Out(absl::StrCat(
      "job          ", job.id, " (", report->name, ")\n", "phase        over, ", report->outcome,
      ", ", report->restarts, " restarts\n", "reason       ", report->reason, "\n",
      "progress     step ", report->steps, "\n", "report       ", ReportPath(job), "\n"));
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
  console.Out(flags.json ? DescriptionJson(*description) : DescriptionText(*description));
  return kExitDone;
}

}  // namespace trainctl
