#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "launcher/commands/commands.h"
#include "launcher/commands/exit_status.h"
#include "launcher/console.h"
#include "launcher/job_client.h"
#include "launcher/job_lookup.h"
#include "launcher/update_json.h"
#include "runtime/base/clock.h"
#include "runtime/base/places.h"
#include "runtime/base/status.h"

namespace trainctl {
namespace {

// The job that is meant, or all those with a coordinator.
absl::StatusOr<std::vector<KnownJob>> JobsMeant(const NodesFlags& flags) {
  if (flags.job.has_value()) {
    ASSIGN_OR_RETURN(KnownJob job, FindJob(StateFolder(), *flags.job));
    return std::vector<KnownJob>{std::move(job)};
  }
  ASSIGN_OR_RETURN(std::vector<KnownJob> jobs, KnownJobs(StateFolder()));
  std::erase_if(jobs, [](const KnownJob& job) { return !CoordinatorListens(job.id); });
  return jobs;
}

std::string NodeLine(const std::string& job, const NodeView& node, Instant now) {
  const std::string since = absl::StrFormat("%.0f s", ToSeconds(now - node.since));
  std::string line =
      absl::StrFormat("%-20s %-10s %7d %8s  %-20s %s", node.node, NodeStandingName(node.standing),
                      node.workers, since, node.address, job);
  if (!node.reason.empty()) absl::StrAppend(&line, "  ", node.reason);
  return line + "\n";
}

int Show(const std::vector<KnownJob>& jobs, const NodesFlags& flags) {
  std::string out;
  if (!flags.json) {
    out = absl::StrFormat("%-20s %-10s %7s %8s  %-20s %s\n", "NODE", "STANDING", "WORKERS", "SINCE",
                          "ADDRESS", "JOB");
  }
  for (const KnownJob& job : jobs) {
    const absl::StatusOr<JobDescription> description = JobClient(JobSocket(job.id)).Describe();
    if (!description.ok() && flags.job.has_value()) return Fail(description.status());
    if (!description.ok()) continue;  // it just ended
    for (const NodeView& node : description->view.nodes) {
      out += flags.json ? NodeJson(job.id, node) : NodeLine(job.id, node, Now());
    }
  }
  Console console;
  if (jobs.empty() && !flags.json) {
    console.Err("trainctl: no job runs here; trainctl list shows those that are over\n");
  }
  console.Out(out);
  return kExitDone;
}

int Drain(const std::vector<KnownJob>& jobs, const NodesFlags& flags) {
  const DrainAsked order{flags.node, flags.what == "drain", "trainctl nodes"};
  absl::Status last = absl::NotFoundError(
      absl::StrCat("no job that runs here has a node ", flags.node, "; trainctl nodes shows them"));
  bool done = false;
  Console console;
  for (const KnownJob& job : jobs) {
    const absl::Status told = JobClient(JobSocket(job.id)).Drain(order);
    if (told.ok()) {
      done = true;
      console.Err(absl::StrCat("trainctl: asked job ", job.id, " to ", flags.what, " node ",
                               flags.node, "\n"));
    } else if (flags.job.has_value() || !absl::IsNotFound(told)) {
      last = told;
    }
  }
  return done ? kExitDone : Fail(last);
}

}  // namespace

int RunNodes(const NodesFlags& flags) {
  const absl::StatusOr<std::vector<KnownJob>> jobs = JobsMeant(flags);
  if (!jobs.ok()) {
    return Fail(jobs.status());
  }
  return flags.what.empty() ? Show(*jobs, flags) : Drain(*jobs, flags);
}

}  // namespace trainctl
