// Several tasks that a scheduler started on one node: the first launches the job with as many
// workers as there are tasks; each other one lends it the processors and GPUs that it was given,
// waits, and ends as the worker in its place did.
#ifndef TRAINCTL_LAUNCHER_COMMANDS_LOCAL_TASKS_H_
#define TRAINCTL_LAUNCHER_COMMANDS_LOCAL_TASKS_H_

#include <vector>

#include "absl/status/status.h"
#include "launcher/schedulers.h"
#include "runtime/base/fd.h"
#include "runtime/base/time.h"

namespace trainctl {

// The first task's side. Not thread-safe.
class FirstTask {
 public:
  // Waits for the loan of every other task; from then on this process and what it starts may use
  // what all have, and CUDA_VISIBLE_DEVICES says so. No-op where there are no others. `patience`:
  // for all of them. DEADLINE_EXCEEDED names who has lent nothing. REQUIRES: there is one thread.
  absl::Status Begin(const NodeIdentity& identity, Duration patience);
  // What the others end with: each with its worker's status, or with `status` where there is none.
  // Without this call, as after SIGKILL, they say so and end with 3.
  void End(int status, const std::vector<int>& worker_statuses);

 private:
  std::vector<Fd> others_;  // connections, by local id; [0] is ours and empty
};

// Any other task: lends what it has and waits for what it is to end with. `patience`: for the first
// one to begin.
int LendSlot(const NodeIdentity& identity, Duration patience);

}  // namespace trainctl

#endif  // TRAINCTL_LAUNCHER_COMMANDS_LOCAL_TASKS_H_
