#include "runtime/node/shim_sweep.h"

#include <unistd.h>

#include "runtime/base/status.h"
#include "runtime/local/cgroup.h"
#include "runtime/local/shim_files.h"
#include "runtime/node/slot_lock.h"

namespace trainctl {

absl::Status SweepShim(const std::string& shim_socket, Duration patience) {
  const std::string lock_path = ShimLock(shim_socket);
  ASSIGN_OR_RETURN(const Fd lock, LockShim(lock_path));
  RETURN_IF_ERROR(SweepMarkedCgroup(CgroupMark(shim_socket), patience));
  ::unlink(shim_socket.c_str());
  ::unlink(lock_path.c_str());  // last: who holds it may remove it
  return absl::OkStatus();
}

}  // namespace trainctl
