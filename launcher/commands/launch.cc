#include <utility>

#include "launcher/commands/attach.h"
#include "launcher/commands/commands.h"
#include "launcher/commands/dry_run.h"
#include "launcher/commands/exit_status.h"
#include "launcher/commands/job_start.h"

namespace trainctl {

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
  Attachment attachment(DisplayOptions{flags.json, request->console});
  absl::StatusOr<RunningJob> running = StartJob(*request, flags.daemon);
  if (!running.ok()) {
    return Fail(running.status());
  }
  return attachment.Stay(running->job, std::move(running->daemon));
}

}  // namespace trainctl
