// Did the kernel kill a process for memory? Its log names the process, if we may read it; else the
// counter of a cgroup, which tells that one of its members was.
#ifndef TRAINCTL_RUNTIME_SUPERVISOR_OOM_WATCH_H_
#define TRAINCTL_RUNTIME_SUPERVISOR_OOM_WATCH_H_

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "runtime/base/fd.h"

namespace trainctl {

// PURE: the pid in a line of the kernel's log that says that it killed a process for memory, such
// as "Memory cgroup out of memory: Killed process 812 (python3) total-vm:…".
std::optional<pid_t> PidKilledForMemory(absl::string_view line);
// PURE: N of the line "oom_kill N" of memory.events or memory.oom_control.
std::optional<uint64_t> OomKills(absl::string_view text);

// Lives on one thread; never blocks.
class OomWatch {
 public:
  // Watches from now on. `counters`: see JobCgroup::OomCounters.
  explicit OomWatch(const std::vector<std::string>& counters);

  // What shows that `pid`, which was ended by SIGKILL, was killed for memory, with its source;
  // empty if nothing does. Each count of a counter is used once.
  std::string Evidence(pid_t pid);

 private:
  void ReadLog();

  Fd log_;                               // /dev/kmsg; not valid if we may not read it
  std::map<pid_t, std::string> killed_;  // the log's line, by process
  std::vector<std::pair<std::string, uint64_t>> counters_;
};

}  // namespace trainctl

#endif  // TRAINCTL_RUNTIME_SUPERVISOR_OOM_WATCH_H_
