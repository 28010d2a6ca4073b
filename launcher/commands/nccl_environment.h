// The user's own settings of NCCL.
#ifndef TRAINCTL_LAUNCHER_COMMANDS_NCCL_ENVIRONMENT_H_
#define TRAINCTL_LAUNCHER_COMMANDS_NCCL_ENVIRONMENT_H_

#include <map>
#include <string>

namespace trainctl {

std::map<std::string, std::string> NcclEnvironment();  // NCCL_* of this process

}  // namespace trainctl

#endif  // TRAINCTL_LAUNCHER_COMMANDS_NCCL_ENVIRONMENT_H_
