// A session of workers of one node that have no supervisor: they exchange through files of a folder
// that all of them see.
#ifndef TRAINCTL_RUNTIME_PREFLIGHT_FOLDER_SESSION_H_
#define TRAINCTL_RUNTIME_PREFLIGHT_FOLDER_SESSION_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "runtime/worker/session.h"

namespace trainctl {

// `folder` is new for these workers and is theirs alone; they do not remove it.
absl::StatusOr<std::unique_ptr<Session>> MakeFolderSession(const std::string& folder, int rank,
                                                           int ranks);

}  // namespace trainctl

#endif  // TRAINCTL_RUNTIME_PREFLIGHT_FOLDER_SESSION_H_
