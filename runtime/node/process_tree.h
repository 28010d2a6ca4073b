// Who descends from whom on this machine.
#ifndef TRAINCTL_RUNTIME_NODE_PROCESS_TREE_H_
#define TRAINCTL_RUNTIME_NODE_PROCESS_TREE_H_

#include <sys/types.h>

#include <vector>

namespace trainctl {

// `root` and all that descend from it, parents first.
std::vector<pid_t> ProcessTree(pid_t root);
// The process of a pidfd; -1 if it has ended.
pid_t PidOfPidfd(int pidfd);

}  // namespace trainctl

#endif  // TRAINCTL_RUNTIME_NODE_PROCESS_TREE_H_
