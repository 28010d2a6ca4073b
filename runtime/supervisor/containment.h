// Everything that descends from this process, which must be a subreaper (MakeSubreaper): a child
// whose parent ends becomes ours, so nothing that a worker starts gets away, whether it forks
// twice, makes a session of its own or is stopped. "No child left" therefore means "no descendant
// left", and that is the only proof of absence used. A cgroup, where one is ours, kills faster
// (local/cgroup.h), and proves nothing.
#ifndef TRAINCTL_RUNTIME_SUPERVISOR_CONTAINMENT_H_
#define TRAINCTL_RUNTIME_SUPERVISOR_CONTAINMENT_H_

#include <sys/types.h>

#include <functional>
#include <initializer_list>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace trainctl {

absl::Status MakeSubreaper();

struct Descendant {
  pid_t pid = 0;
  pid_t parent = 0;
  pid_t group = 0;
  char state = 0;  // as in /proc/PID/stat
  bool zombie() const { return state == 'Z' || state == 'X'; }
};
// Any process or thread of this machine; nullopt: there is none.
std::optional<Descendant> ReadProcess(pid_t pid);
// A file of /proc without the end of its last line; empty: it cannot be read.
std::string ReadProc(const std::string& path);

// All descendants of this process at this moment, parents before their children. One that is
// forked during the call may be missing: callers repeat until ReapChildren finds none.
std::vector<Descendant> ListDescendants();
std::vector<Descendant> ListDescendantsOf(pid_t pid);

// Sends `signos` to every living descendant for which `wanted` holds. A pid is signalled only after
// a pidfd for it is held and its parent is seen to be ours still, so that a reused pid is never
// hit.
void SignalDescendants(std::initializer_list<int> signos,
                       const std::function<bool(const Descendant&)>& wanted);

// How a reaped child ended, as wait reports it.
struct Reaped {
  pid_t pid = 0;
  bool signaled = false;
  int code = 0;  // exit code, or signal
  bool core = false;
};
// Reaps every child that has ended, without blocking, and tells of those that a signal has stopped
// or continued. Returns whether children are left.
bool ReapChildren(const std::function<void(const Reaped&)>& ended,
                  const std::function<void(pid_t, bool stopped)>& changed);

// For people: each descendant that is still there, with its state and where in the kernel it waits:
// "pid 812 (python3), state D, in nfs_wait_on_request". Empty if there is none.
std::string DescribeDescendants();

// Kills and reaps until no descendant is left; blocks. REQUIRES: SIGCHLD is blocked.
void KillAllDescendants();

}  // namespace trainctl

#endif  // TRAINCTL_RUNTIME_SUPERVISOR_CONTAINMENT_H_
