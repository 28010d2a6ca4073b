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
  if (!request->scheduler.has_value()) {
    return Launch(*request, flags);
  }
  if (request->scheduler->local_id > 0) {
    return FollowFirstTask(*request->scheduler, request->spec.join_timeout);
  }
  FirstTask first_task;
  if (const absl::Status begun = first_task.Begin(*request->scheduler); !begun.ok()) {
    return Fail(begun);
  }
  const int status = Launch(*request, flags);
  first_task.End(status);
  return status;
}

}  // namespace trainctl
