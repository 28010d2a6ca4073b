// Exit statuses of `trainctl launch` that the coordinator decides (README, "Exit status"); others
// are a worker's own.
#ifndef TRAINCTL_LAUNCHER_COORDINATOR_EXIT_STATUS_H_
#define TRAINCTL_LAUNCHER_COORDINATOR_EXIT_STATUS_H_

namespace trainctl {

inline constexpr int kFailedStatus = 1;
inline constexpr int kUsageStatus = 2;
inline constexpr int kJournalStatus = 4;
inline constexpr int kUnfitStatus = 5;  // the one node that the job has cannot run it
inline constexpr int kJoinTimeoutStatus = 6;
inline constexpr int kPreemptedStatus = 75;
inline constexpr int kNotMendableStatus = 93;  // with --requeue-status: running again is no use

}  // namespace trainctl

#endif  // TRAINCTL_LAUNCHER_COORDINATOR_EXIT_STATUS_H_
