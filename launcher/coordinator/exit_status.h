// What trainctl ends with, as in `trainctl --help`; some of it the coordinator decides.
#ifndef TRAINCTL_LAUNCHER_COORDINATOR_EXIT_STATUS_H_
#define TRAINCTL_LAUNCHER_COORDINATOR_EXIT_STATUS_H_

namespace trainctl {

inline constexpr int kExitDone = 0;
inline constexpr int kExitFailed = 1;
inline constexpr int kExitUsage = 2;
inline constexpr int kExitUnreachable = 3;
inline constexpr int kExitNotAuthorised = 4;
inline constexpr int kExitNotFit = 5;
inline constexpr int kExitTimeout = 6;
inline constexpr int kExitPreempted = 75;    // with --requeue-status
inline constexpr int kExitNotMendable = 93;  // the same: running again is no use
inline constexpr int kExitSignalBase = 128;

}  // namespace trainctl

#endif  // TRAINCTL_LAUNCHER_COORDINATOR_EXIT_STATUS_H_
