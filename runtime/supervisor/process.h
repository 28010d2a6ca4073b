// Starting one worker.
#ifndef TRAINCTL_RUNTIME_SUPERVISOR_PROCESS_H_
#define TRAINCTL_RUNTIME_SUPERVISOR_PROCESS_H_

#include <sys/types.h>

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "runtime/base/fd.h"

namespace trainctl {

// "NAME=value" lists joined; for each name the last value wins, at the place of the first.
std::vector<std::string> MergeEnvironment(const std::vector<std::string>& common,
                                          const std::vector<std::string>& own);
// The value of `name`, empty if it is not there.
absl::string_view EnvironmentValue(const std::vector<std::string>& environment,
                                   absl::string_view name);

struct ProcessSpec {
  std::vector<std::string> argv;  // REQUIRES: not empty
  std::vector<std::string> environment;
  std::string cwd;                  // empty: the supervisor's
  int cgroup = -1;                  // a group of version 2 in which it begins; -1: the supervisor's
  std::vector<int> cgroup_entries;  // of version 1, which it enters
  std::vector<int> cpus;            // on which it may run; empty: those of the supervisor
  int numa = -1;                    // whose memory it prefers; -1: as the supervisor
};
// Whether a process may run on these CPUs and no others. Of those of `cpus` that its cgroup does
// not allow nothing is expected.
bool IsBoundTo(pid_t pid, const std::vector<int>& cpus);

// A child between fork and exec, with our ends of its pipes (non-blocking, close-on-exec).
struct WorkerProcess {
  pid_t pid = 0;
  Fd exec_result;  // see ReadExecResult
  Fd out;          // its stdout
  Fd err;          // its stderr
};

// Forks a child that becomes a session leader with stdin from /dev/null, default signal
// dispositions, an empty signal mask, the descriptor limit from before RaiseDescriptorLimit, as
// much locked memory as it may have, and only descriptors 0, 1, 2, and executes the program.
// argv[0] without a slash is looked up in the child's own PATH. Returns at once, see
// ReadExecResult; RESOURCE_EXHAUSTED if there is no room for a process or a descriptor. REQUIRES:
// this process has its descriptors 0, 1 and 2 open.
absl::StatusOr<WorkerProcess> Fork(const ProcessSpec& spec);

struct ExecResult {
  enum class Kind { kPending, kExecuted, kFailed } kind = Kind::kPending;
  int error = 0;        // errno, if kFailed
  std::string message;  // "execute /x/y: Permission denied", if kFailed
};
// Reads, without blocking, how the exec went. `fd` is WorkerProcess::exec_result.
ExecResult ReadExecResult(int fd, const ProcessSpec& spec);

// Raises this process's soft limit of descriptors to the hard one; children get the old one back.
void RaiseDescriptorLimit();

}  // namespace trainctl

#endif  // TRAINCTL_RUNTIME_SUPERVISOR_PROCESS_H_
