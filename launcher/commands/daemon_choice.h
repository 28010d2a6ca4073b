// Which daemon starts a job: the one that is named, else this user's, else a system daemon that
// lets the user in, else a private one of this job.
#ifndef TRAINCTL_LAUNCHER_COMMANDS_DAEMON_CHOICE_H_
#define TRAINCTL_LAUNCHER_COMMANDS_DAEMON_CHOICE_H_

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/base/fd.h"
#include "runtime/base/program.h"
#include "runtime/base/time.h"

namespace trainctl {

// A private daemon that dies so often in a row, each time so soon after its start, is not mended by
// another one.
inline constexpr int kMostDaemonDeaths = 5;
inline constexpr Duration kQuickDaemonDeath = seconds(1);

// A daemon of one job, started by this front end. It ends with its job, not with us.
struct PrivateDaemon {
  std::string socket;
  std::string log_file;
  Child child;
  Fd ready;
};

// A daemon that runs; nullopt: none, a private one is needed. UNAVAILABLE if `address` is given
// ("unix:PATH" or a path) and nobody listens there.
absl::StatusOr<std::optional<std::string>> FindDaemon(const std::optional<std::string>& address);

// Starts one and returns at once. Its own messages go to `log_file`. `adopt`: it takes over this
// job's coordinator and workers instead of waiting for a submission; empty: none.
absl::StatusOr<PrivateDaemon> StartPrivateDaemon(const std::string& log_file,
                                                 const std::string& adopt);
// The daemon that a job belongs to, if it is one of this user's: its process, and where it listens.
// Nobody watches over it but a service manager, if it has one. NOT_FOUND: the job has none that
// lives; PERMISSION_DENIED: it is another user's.
struct OtherDaemon {
  std::string socket;
  Fd process;  // pidfd
};
absl::StatusOr<OtherDaemon> DaemonOf(const std::string& job_folder);
// Waits until it listens. UNAVAILABLE quotes its log if it died.
absl::Status AwaitDaemon(const PrivateDaemon& daemon);
// For one that got no job: ends it and waits until it is gone.
void EndDaemon(PrivateDaemon* daemon);

}  // namespace trainctl

#endif  // TRAINCTL_LAUNCHER_COMMANDS_DAEMON_CHOICE_H_
