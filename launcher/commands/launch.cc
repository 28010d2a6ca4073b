#include <utility>

#include "launcher/commands/attach.h"
#include "launcher/commands/commands.h"
#include "launcher/commands/dry_run.h"
#include "launcher/commands/exit_status.h"
#include "launcher/commands/job_start.h"
#include "launcher/commands/local_tasks.h"
#include "launcher/commands/take_part.h"

namespace trainctl {

namespace {

int Launch(const LaunchRequest& request, const LaunchFlags& flags) {
  const NodeRole& role = request.role;
  if (!role.hosts) {
    return Participant(flags.json).Run(request, flags.daemon);
  }
  Attachment attachment(DisplayOptions{flags.json, request.console});
  absl::StatusOr<RunningJob> running = StartJob(request, flags.daemon);
  // Somebody else was first to host it, and everybody's command is the same.
  if (absl::IsAlreadyExists(running.status()) && role.may_join) {
    return Participant(flags.json).Run(request, flags.daemon);
  }
  if (!running.ok()) {
    return Fail(running.status());
  }
  return attachment.Stay(running->job, std::move(running->daemon));
}

int LaunchWithOtherTasks(const LaunchFlags& flags, const LaunchRequest& own) {
  FirstTask first_task;
  const Duration patience = own.spec.join_timeout;
  int status = 0;
  if (const absl::Status begun = first_task.Begin(*own.scheduler, patience); !begun.ok()) {
    status = Fail(begun);
  } else {
    // What the others lent is seen in our surroundings.
    const absl::StatusOr<LaunchRequest> request = ReadRequest(flags);
    status = request.ok() ? Launch(*request, flags) : Fail(request.status());
  }
  first_task.End(status);
  return status;
}

}  // namespace

int RunLaunch(const LaunchFlags& flags) {
  if (flags.detach) {
    return RunSubmit(flags);
  }
  absl::StatusOr<LaunchRequest> request = ReadRequest(flags);
  if (!request.ok()) {
    return Fail(request.status());
  }
  if (flags.dry_run) {
    return DryRun(*request, flags.json);
  }
  const std::optional<NodeIdentity>& scheduler = request->scheduler;
  if (!scheduler.has_value() || scheduler->local_tasks < 2) {
    return Launch(*request, flags);
  }
  return scheduler->local_id > 0 ? LendSlot(*scheduler, request->spec.join_timeout)
                                 : LaunchWithOtherTasks(flags, *request);
}

}  // namespace trainctl
