// What trainctl ends with, as in `trainctl --help`.
#ifndef TRAINCTL_LAUNCHER_COMMANDS_EXIT_STATUS_H_
#define TRAINCTL_LAUNCHER_COMMANDS_EXIT_STATUS_H_

#include "absl/status/status.h"

namespace trainctl {

inline constexpr int kExitDone = 0;
inline constexpr int kExitFailed = 1;
inline constexpr int kExitUsage = 2;
inline constexpr int kExitUnreachable = 3;
inline constexpr int kExitNotAuthorised = 4;
inline constexpr int kExitNotFit = 5;
inline constexpr int kExitTimeout = 6;
inline constexpr int kExitSignalBase = 128;

// The exit status for an error before or beside a job.
int ExitStatusOf(const absl::Status& status);

// Prints "trainctl: message" to stderr and returns the exit status.
int Fail(const absl::Status& status);

// From now on Fail also prints {"schema": 1, "type": "error", …} on stdout: whoever asked for
// --json reads no other stream.
void TellErrorsAsJson();

}  // namespace trainctl

#endif  // TRAINCTL_LAUNCHER_COMMANDS_EXIT_STATUS_H_
