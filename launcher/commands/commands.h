// The verbs of trainctl. Each returns the exit status of the process; what went wrong is already on
// stderr.
#ifndef TRAINCTL_LAUNCHER_COMMANDS_COMMANDS_H_
#define TRAINCTL_LAUNCHER_COMMANDS_COMMANDS_H_

#include "launcher/command_line.h"

namespace trainctl {

int RunLaunch(const LaunchFlags& flags);
int RunSubmit(const LaunchFlags& flags);
int RunResume(const JobFlags& flags);
int RunList(const JobFlags& flags);
int RunStatus(const JobFlags& flags);
int RunLogs(const JobFlags& flags);
int RunStop(const JobFlags& flags);
int RunSignal(const JobFlags& flags);
int RunEvents(const JobFlags& flags);
int RunReport(const JobFlags& flags);
int RunChaos(const ChaosFlags& flags);
int RunNodes(const NodesFlags& flags);
int RunTopo(const TopoFlags& flags);
int RunPreflight(const PreflightFlags& flags);
int RunBench(const BenchFlags& flags);
int RunKey(const KeyFlags& flags);
int RunVersion(const JobFlags& flags);
int RunCompletion(const std::string& shell);
int RunManualPage();  // for the installation, not in --help

}  // namespace trainctl

#endif  // TRAINCTL_LAUNCHER_COMMANDS_COMMANDS_H_
