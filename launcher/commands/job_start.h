// Starting a job: its folder, the daemon, the submission. What launch and submit share.
#ifndef TRAINCTL_LAUNCHER_COMMANDS_JOB_START_H_
#define TRAINCTL_LAUNCHER_COMMANDS_JOB_START_H_

#include <optional>

#include "absl/status/statusor.h"
#include "launcher/command_line.h"
#include "launcher/commands/daemon_choice.h"
#include "launcher/launch_request.h"
#include "launcher/node_client.h"

namespace trainctl {

// Flags, PET_* and the job file, checked. Starts nothing.
absl::StatusOr<LaunchRequest> ReadRequest(const LaunchFlags& flags);

struct RunningJob {
  StartedJob job;
  std::optional<PrivateDaemon> daemon;  // if one had to be started
};

// Before a job or a part in one is started: that nobody else has its GPUs, and, on stderr, what is
// wrong with them.
absl::Status PrepareGpus(const LaunchRequest& request);

// On an error nothing is left: no folder, no daemon.
absl::StatusOr<RunningJob> StartJob(const LaunchRequest& request,
                                    const std::optional<std::string>& daemon_address);

}  // namespace trainctl

#endif  // TRAINCTL_LAUNCHER_COMMANDS_JOB_START_H_
