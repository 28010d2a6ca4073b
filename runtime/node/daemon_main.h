// What traind does: the daemon of a node.
#ifndef TRAINCTL_RUNTIME_NODE_DAEMON_MAIN_H_
#define TRAINCTL_RUNTIME_NODE_DAEMON_MAIN_H_

namespace trainctl {

// Returns the exit status of the process. Owns the process: its signals, its log, its threads.
int DaemonMain(int argc, char** argv);

}  // namespace trainctl

#endif  // TRAINCTL_RUNTIME_NODE_DAEMON_MAIN_H_
