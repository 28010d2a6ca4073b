// What train-shim was started with.
#ifndef TRAINCTL_RUNTIME_SUPERVISOR_OPTIONS_H_
#define TRAINCTL_RUNTIME_SUPERVISOR_OPTIONS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/base/time.h"

namespace trainctl {

struct ShimOptions {
  std::string job;
  std::string socket;  // absolute
  std::string folder;  // of the job; shim.log is there
  int slots = 0;
  Duration lease = seconds(10);
  int daemon_fd = -1;         // a connected stream socket to the daemon that started us
  int ready_fd = -1;          // the reason goes here if the shim cannot begin
  int scope_fd = -1;          // at its end the shim is in the cgroup where it stays
  std::vector<int> hold_fds;  // kept open for life: locked files
};

inline constexpr int kMaxSlots = 1024;

// INVALID_ARGUMENT says which option is wrong and how.
absl::StatusOr<ShimOptions> ParseShimOptions(int argc, char** argv);

}  // namespace trainctl

#endif  // TRAINCTL_RUNTIME_SUPERVISOR_OPTIONS_H_
