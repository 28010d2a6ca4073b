// A transient scope of systemd for one process of a job and what it starts: a cgroup beside the
// daemon's own, delegated to us, in which it outlives whatever happens to the daemon's service, and
// is seen by the tools of the system (systemd-cgls, systemctl status trainctl-JOB.scope).
#ifndef TRAINCTL_RUNTIME_NODE_JOB_SCOPE_H_
#define TRAINCTL_RUNTIME_NODE_JOB_SCOPE_H_

#include <sys/types.h>

#include <csignal>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "runtime/base/loop.h"
#include "runtime/node/libsystemd.h"

namespace trainctl {

// PURE: the unit's name without its ending, of the characters that such a name may have; one for
// each shim socket in a folder.
std::string ScopeName(absl::string_view shim_socket);

struct ScopeSpec {
  std::string name;  // of the unit, without its ending
  std::string description;
  // By which systemd ends it: at a shutdown, or because somebody stops the scope. Five seconds
  // later it is SIGKILL.
  int end_signal = SIGTERM;
};

// Lives on the loop's thread.
class JobScope {
 public:
  using Done = std::function<void(const absl::Status& status)>;

  // Asks the manager that started us, of the system or of the user, for a scope with process `pid`
  // in it. `done` is called once, later: the process is in its scope, or why it stays
  // where it is. Not called if this is destroyed before.
  JobScope(Loop* loop, pid_t pid, ScopeSpec spec, Done done);
  ~JobScope();
  JobScope(const JobScope&) = delete;
  JobScope& operator=(const JobScope&) = delete;

 private:
  bool FindOwnUnit();  // returns whether it is one of a user's manager
  absl::Status Connect();
  absl::Status Ask();
  void Process();
  int OnReply(sd_bus_message* reply);
  int OnJobRemoved(sd_bus_message* signal);
  void End(const absl::Status& status);
  void Hangup();

  Loop* loop_;
  const pid_t pid_;
  std::string own_unit_ = "traind.service";  // the service that we are
  ScopeSpec spec_;
  Done done_;  // empty: it was called
  const Libsystemd* systemd_ = nullptr;
  sd_bus* bus_ = nullptr;
  int fd_ = -1;  // of bus_, watched
  bool renamed_ = false;
  std::string start_job_;  // systemd's job that makes the scope; empty: not yet known
  absl::Status outcome_;
  bool ended_ = false;  // and outcome_ is to be told once the bus calls us no more
  Loop::TimerId give_up_{};
};

}  // namespace trainctl

#endif  // TRAINCTL_RUNTIME_NODE_JOB_SCOPE_H_
