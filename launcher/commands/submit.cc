
#include "absl/strings/str_cat.h"
#include "launcher/commands/commands.h"
#include "launcher/commands/dry_run.h"
#include "launcher/commands/exit_status.h"
#include "launcher/commands/job_start.h"
#include "launcher/console.h"
#include "runtime/json/json_text.h"

namespace trainctl {

int RunSubmit(const LaunchFlags& flags) {
  LaunchFlags detached = flags;
  detached.detach = true;
  absl::StatusOr<LaunchRequest> request = ReadRequest(detached);
  if (!request.ok()) {
    return Fail(request.status());
  }
  if (flags.dry_run) {
    return DryRun(*request, flags.json);
  }
  if (!request->role.hosts) {
    return Fail(absl::InvalidArgumentError(
        "submit and --detach start a job where it is coordinated, on node 0; give the other nodes "
        "trainctl launch"));
  }
  absl::StatusOr<RunningJob> running = StartJob(*request, flags.daemon);
  if (!running.ok()) {
    return Fail(running.status());
  }
  Console console;
  if (flags.json) {
    const nlohmann::ordered_json json = {{"schema", 1},
                                         {"type", "submitted"},
                                         {"job", running->job.job_id},
                                         {"job_folder", running->job.job_folder},
                                         {"log_folder", request->spec.log_folder}};
    console.Out(absl::StrCat(JsonText(json), "\n"));
  } else {
    console.Out(absl::StrCat(running->job.job_id, "\n"));
  }
  return kExitDone;
}

}  // namespace trainctl
