// Names of what lies beside a shim's socket. Whoever finds one of them when its shim is gone sweeps
// all three (node/shim_sweep.h).
#ifndef TRAINCTL_RUNTIME_LOCAL_SHIM_FILES_H_
#define TRAINCTL_RUNTIME_LOCAL_SHIM_FILES_H_

#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

namespace trainctl {

// Locked as long as one of the shim's two processes lives.
inline std::string ShimLock(absl::string_view shim_socket) {
  return absl::StrCat(shim_socket, ".lock");
}
// A symbolic link to the cgroup of its workers (cgroup.h).
inline std::string CgroupMark(absl::string_view shim_socket) {
  return absl::StrCat(shim_socket, ".cgroup");
}
// The socket of the shim to which one of the three belongs; empty: `path` is none of them.
inline std::string ShimOf(absl::string_view path) {
  for (const absl::string_view ending : {".lock", ".cgroup"}) {
    if (absl::ConsumeSuffix(&path, ending)) break;
  }
  return absl::EndsWith(path, ".shim") ? std::string(path) : std::string();
}

}  // namespace trainctl

#endif  // TRAINCTL_RUNTIME_LOCAL_SHIM_FILES_H_
