// How a command ends: the status, and what is said before it.
#ifndef TRAINCTL_LAUNCHER_COMMANDS_EXIT_STATUS_H_
#define TRAINCTL_LAUNCHER_COMMANDS_EXIT_STATUS_H_

#include "absl/status/status.h"
#include "launcher/coordinator/exit_status.h"

namespace trainctl {

// The exit status for an error before or beside a job.
int ExitStatusOf(const absl::Status& status);

// Prints "trainctl: message" to stderr and returns the exit status.
int Fail(const absl::Status& status);

// From now on Fail also prints {"schema": 1, "type": "error", …} on stdout: whoever asked for
// --json reads no other stream.
void TellErrorsAsJson();

}  // namespace trainctl

#endif  // TRAINCTL_LAUNCHER_COMMANDS_EXIT_STATUS_H_
