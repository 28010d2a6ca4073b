#include <utility>
#include <vector>

#include "launcher/commands/attach.h"
#include "launcher/commands/commands.h"
#include "launcher/commands/dry_run.h"
#include "launcher/commands/exit_status.h"
#include "launcher/commands/job_start.h"
#include "launcher/commands/local_tasks.h"
#include "launcher/commands/take_part.h"

namespace trainctl {

namespace {

struct NodeEnd {
  int status = 0;
  std::vector<int> workers;  // status of each worker here; empty: not known
};

NodeEnd TakePart(const LaunchRequest& request, const LaunchFlags& flags) {
  Participant participant(flags.json);
  const int status = participant.Run(request, flags.daemon);
  return {status, participant.worker_statuses()};
}

NodeEnd Launch(const LaunchRequest& request, const LaunchFlags& flags) {
  const NodeRole& role = request.role;
  if (!role.hosts) {
    return TakePart(request, flags);
  }
  Attachment attachment(DisplayOptions{flags.json, request.console});
  absl::StatusOr<RunningJob> running = StartJob(request, flags.daemon);
  // Somebody else was first to host it, and everybody's command is the same.
  if (absl::IsAlreadyExists(running.status()) && role.may_join) {
    return TakePart(request, flags);
  }
  if (!running.ok()) {
    return {Fail(running.status()), {}};
  }
  const int status = attachment.Stay(running->job, std::move(running->daemon));
  return {status, attachment.worker_statuses()};
}

int LaunchWithOtherTasks(const LaunchFlags& flags, const LaunchRequest& own) {
  FirstTask first_task;
  const Duration patience = own.spec.join_timeout;
  if (const absl::Status begun = first_task.Begin(*own.scheduler, patience); !begun.ok()) {
    const int status = Fail(begun);
    first_task.End(status, {});
    return status;
  }
  // What the others lent is seen in our surroundings.
  const absl::StatusOr<LaunchRequest> request = ReadRequest(flags);
  const NodeEnd end = request.ok() ? Launch(*request, flags) : NodeEnd{Fail(request.status()), {}};
  first_task.End(end.status, end.workers);
  return end.status;
}

}  // namespace

int RunLaunch(const LaunchFlags& flags) {
  if (flags.detach) {
    return RunSubmit(flags);
  }
  const absl::StatusOr<LaunchRequest> request = ReadRequest(flags);
  if (!request.ok()) {
    return Fail(request.status());
  }
  if (flags.dry_run) {
    return DryRun(*request, flags.json);
  }
  const std::optional<NodeIdentity>& scheduler = request->scheduler;
  if (flags.preflight && (!scheduler.has_value() || scheduler->local_id == 0)) {
    PreflightFlags preflight;
    preflight.first = true;
    if (const int status = RunPreflight(preflight); status != kExitDone) return status;
  }
  if (!scheduler.has_value() || scheduler->local_tasks < 2) {
    return Launch(*request, flags).status;
  }
  return scheduler->local_id > 0 ? LendSlot(*scheduler, request->spec.join_timeout)
                                 : LaunchWithOtherTasks(flags, *request);
}

}  // namespace trainctl
