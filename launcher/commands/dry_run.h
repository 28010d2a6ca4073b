// What a launch would start.
#ifndef TRAINCTL_LAUNCHER_COMMANDS_DRY_RUN_H_
#define TRAINCTL_LAUNCHER_COMMANDS_DRY_RUN_H_

#include "launcher/launch_request.h"

namespace trainctl {

// Prints the plan and every worker's command and environment; starts and writes nothing. Returns
// the exit status.
int DryRun(const LaunchRequest& request, bool json);

}  // namespace trainctl

#endif  // TRAINCTL_LAUNCHER_COMMANDS_DRY_RUN_H_
