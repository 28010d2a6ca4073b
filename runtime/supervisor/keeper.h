// The keeper: first process of the shim and parent of the supervisor. It holds the worker pages
// and the lease, and when the lease ends, or the supervisor does, it kills and reaps every
// descendant of the workers. It does nothing else, so that nothing can go wrong with it.
#ifndef TRAINCTL_RUNTIME_SUPERVISOR_KEEPER_H_
#define TRAINCTL_RUNTIME_SUPERVISOR_KEEPER_H_

#include <sys/types.h>

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "runtime/base/fd.h"
#include "runtime/base/time.h"
#include "runtime/local/cgroup.h"

namespace trainctl {

// A unix socket's file and the lock that goes with it, removed only while the socket still is the
// one that we made.
class SocketFile {
 public:
  static absl::StatusOr<SocketFile> Of(const std::string& path);
  void Remove() const;

 private:
  std::string path_;
  uint64_t device_ = 0;
  uint64_t inode_ = 0;
};

// Supervisor -> keeper, one message each on a SOCK_SEQPACKET pair: kill everything at this instant
// unless another note comes first; kNever: there is nothing to kill.
struct LeaseNote {
  Instant until;
};

// Runs until the supervisor and everything below it is gone; returns the exit status: 0 if the
// supervisor ended by itself, 1 if it died, 3 if the lease ended.
// REQUIRES: called in the supervisor's parent; SIGTERM, SIGINT and SIGCHLD are blocked.
int RunKeeper(pid_t supervisor, Fd link, const SocketFile& socket, const JobCgroup& cgroup);

}  // namespace trainctl

#endif  // TRAINCTL_RUNTIME_SUPERVISOR_KEEPER_H_
