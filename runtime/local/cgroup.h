// The control groups of one job on one node: what the kernel itself holds together, limits and
// counts. They add to the walk through /proc (supervisor/containment.h) what it cannot do: kill all
// in one call, find the processes of a shim that is gone, limit memory and processes.
//
// Found in the texts of cgroups(7) and proc(5). A hierarchy of version 2 may be the only one or
// stand beside those of version 1, which then have the memory and pids controllers.
#ifndef TRAINCTL_RUNTIME_LOCAL_CGROUP_H_
#define TRAINCTL_RUNTIME_LOCAL_CGROUP_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "runtime/base/fd.h"
#include "runtime/base/time.h"

namespace trainctl {

// Folders of this process's own groups; empty: no such hierarchy is mounted, or it is above what is
// mounted here.
struct CgroupFolders {
  std::string unified;  // version 2
  std::string memory;   // version 1, if that controller is there
  std::string pids;     // version 1, if that controller is there
};
// PURE: from the texts of /proc/self/mountinfo and /proc/self/cgroup.
CgroupFolders ParseCgroupFolders(absl::string_view mountinfo, absl::string_view own);
CgroupFolders OwnCgroupFolders();

struct CgroupLimits {  // of all processes of the job on this node together; 0: none
  uint64_t memory_bytes = 0;
  uint64_t processes = 0;
};

// Groups below our own. A process forked later may use them too.
class JobCgroup {
 public:
  JobCgroup() = default;  // no group: nothing is limited, and Kill does nothing
  // A group of version 2 called `name`. `mark` becomes a symbolic link to it, by which
  // SweepMarkedCgroup finds it when nobody is left who could remove it. An error says why there is
  // none; the job can run without.
  static absl::StatusOr<JobCgroup> Make(const CgroupFolders& own, const std::string& name,
                                        const std::string& mark);

  bool made() const { return unified_fd_.valid(); }
  int fd() const { return unified_fd_.get(); }  // for CLONE_INTO_CGROUP; -1 if not made

  // Applies to children that enter later. FAILED_PRECONDITION: no controller can do it, and why.
  absl::Status Limit(const CgroupLimits& limits);
  // cgroup.procs files of version 1, to which a child writes "0" to enter.
  std::vector<int> entries() const;
  // Files whose line "oom_kill N" counts what the kernel killed here for memory.
  std::vector<std::string> OomCounters() const;

  void Kill() const;    // SIGKILL to every member, also to those being forked
  void Remove() const;  // the groups, if no member is left, and the mark

 private:
  struct Old {  // a group of version 1
    std::string folder;
    Fd entry;
  };
  static absl::StatusOr<Old> MakeOld(const std::string& own, absl::string_view name);
  absl::Status LimitMemory(uint64_t bytes);
  absl::Status LimitProcesses(uint64_t count);
  absl::Status EnableController(absl::string_view controller);

  CgroupFolders own_;
  std::string name_;
  std::string mark_;
  std::string unified_;  // of the job
  Fd unified_fd_;
  Old memory_;
  Old pids_;
  bool counts_oom_ = false;  // the group of version 2 has the memory controller
};

// Kills whoever is in the group to which `mark` leads, waits until they are gone, at most
// `patience`, and removes group and mark; nothing to do if there is no mark. DEADLINE_EXCEEDED
// names those that would not die. REQUIRES: the shim that made it is gone.
absl::Status SweepMarkedCgroup(const std::string& mark, Duration patience);

}  // namespace trainctl

#endif  // TRAINCTL_RUNTIME_LOCAL_CGROUP_H_
