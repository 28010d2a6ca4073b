// Several tasks that a scheduler started on one node: the first launches the job with as many
// workers as there are tasks, on all processors that the tasks have; the others wait and end as it
// does.
#ifndef TRAINCTL_LAUNCHER_COMMANDS_LOCAL_TASKS_H_
#define TRAINCTL_LAUNCHER_COMMANDS_LOCAL_TASKS_H_

#include <string>

#include "absl/status/status.h"
#include "launcher/schedulers.h"
#include "runtime/base/fd.h"
#include "runtime/base/time.h"

namespace trainctl {

// The first task's side. Not thread-safe.
class FirstTask {
 public:
  // No-op where there are no others.
  absl::Status Begin(const NodeIdentity& identity);
  // What the others end with. Without it, as after SIGKILL, they end with 1.
  void End(int status);

 private:
  Fd file_;  // locked as long as we live
};

// Any other task: waits for the first one's end and returns its status. `patience`: for it to
// begin.
int FollowFirstTask(const NodeIdentity& identity, Duration patience);

}  // namespace trainctl

#endif  // TRAINCTL_LAUNCHER_COMMANDS_LOCAL_TASKS_H_
