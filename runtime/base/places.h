// Where sockets and state lie. Functions of the environment; thread-safe.
#ifndef TRAINCTL_RUNTIME_BASE_PLACES_H_
#define TRAINCTL_RUNTIME_BASE_PLACES_H_

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace trainctl {

// /tmp/trainctl-UID; for root /run/trainctl. Not $XDG_RUNTIME_DIR, which is deleted at logout, and
// not the home folder, which may be on a file system without sockets.
std::string SocketFolder();
std::string DaemonSocket();                        // of this user's own daemon
std::string JobSocket(absl::string_view job_id);   // of a job's coordinator
bool IsJobSocket(absl::string_view path);          // by its name
std::string ShimSocket(absl::string_view job_id);  // of a job's shim on this node
// Of the shim of a node that takes part in a job whose coordinator is elsewhere. Several nodes of
// one job may be on one machine.
std::string PartShimSocket(absl::string_view job_id, absl::string_view node);

// ${XDG_STATE_HOME:-~/.local/state}/trainctl; for root with it unset /var/lib/trainctl.
std::string StateFolder();
// ${XDG_CONFIG_HOME:-~/.config}/trainctl.
std::string ConfigFolder();
// Where a node keeps what belongs to its part in a job whose coordinator is elsewhere.
std::string PartFolder(const std::string& state_folder, absl::string_view job_id,
                       absl::string_view node);
std::string JobFolder(const std::string& state_folder, absl::string_view job_id);

// Creates `path` with mode 0700 if it is missing (parents too). FAILED_PRECONDITION if it is a
// symbolic link, no folder, somebody else's, or open to others and cannot be closed.
absl::Status MakePrivateFolder(const std::string& path);

}  // namespace trainctl

#endif  // TRAINCTL_RUNTIME_BASE_PLACES_H_
