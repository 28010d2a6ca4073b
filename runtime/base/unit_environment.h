// PURE: what systemd puts into the environment of a service's main process for that process alone.
#ifndef TRAINCTL_RUNTIME_BASE_UNIT_ENVIRONMENT_H_
#define TRAINCTL_RUNTIME_BASE_UNIT_ENVIRONMENT_H_

#include "absl/strings/match.h"
#include "absl/strings/string_view.h"

namespace trainctl {

// Whoever inherited such a variable would speak in the service's name, or take its sockets, logs or
// credentials for its own.
inline bool BelongsToUnit(absl::string_view name) {
  return name == "NOTIFY_SOCKET" || name == "JOURNAL_STREAM" || name == "SYSTEMD_EXEC_PID" ||
         name == "MAINPID" || name == "CREDENTIALS_DIRECTORY" || name == "FDSTORE" ||
         absl::StartsWith(name, "LISTEN_") || absl::StartsWith(name, "WATCHDOG_");
}

}  // namespace trainctl

#endif  // TRAINCTL_RUNTIME_BASE_UNIT_ENVIRONMENT_H_
