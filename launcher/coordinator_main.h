// What train-coordinator does: coordinates one job until its end. Started by traind, never by hand.
#ifndef TRAINCTL_LAUNCHER_COORDINATOR_MAIN_H_
#define TRAINCTL_LAUNCHER_COORDINATOR_MAIN_H_

namespace trainctl {

// Returns the exit status of the process. Owns the process: its signals, its log, its threads.
int CoordinatorMain(int argc, char** argv);

}  // namespace trainctl

#endif  // TRAINCTL_LAUNCHER_COORDINATOR_MAIN_H_
