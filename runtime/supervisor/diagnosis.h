// What can be known of a worker that seems to hang, without sending it a signal.
#ifndef TRAINCTL_RUNTIME_SUPERVISOR_DIAGNOSIS_H_
#define TRAINCTL_RUNTIME_SUPERVISOR_DIAGNOSIS_H_

#include <sys/types.h>

#include <string>
#include <vector>

#include "runtime/base/time.h"
#include "runtime/local/frames.h"
#include "runtime/local/page.h"

namespace trainctl {

// What the verdict compares between ranks.
frame::RankEvidence EvidenceOf(int32_t rank, pid_t pid, WorkerPage& page, Instant now);

// For people: its page, its last collectives, and for each thread of it and of what it started
// where in the kernel it waits. Reads /proc only.
std::string DescribeWorker(pid_t pid, WorkerPage& page, Instant now);

// A command that prints the stacks of a process, of what is installed here: py-spy, else gdb; empty
// if neither is.
std::vector<std::string> StackCommand(pid_t pid);

int64_t CpuNanos(pid_t pid);  // user and system time so far; 0 if it is gone

}  // namespace trainctl

#endif  // TRAINCTL_RUNTIME_SUPERVISOR_DIAGNOSIS_H_
