// Sets of CPUs as the kernel writes them. Pure.
#ifndef TRAINCTL_RUNTIME_TOPOLOGY_CPU_LIST_H_
#define TRAINCTL_RUNTIME_TOPOLOGY_CPU_LIST_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace trainctl {

inline constexpr int kMostCpus = 1 << 16;

// "0-3,8" -> 0 1 2 3 8, rising, none twice; nullopt: no such list.
std::optional<std::vector<int>> ParseCpuList(absl::string_view text);
std::string CpuListText(const std::vector<int>& cpus);  // REQUIRES: rising, none twice

// "00000000,0000ffff,ff000000": words of 32 bits, the highest first, as NCCL and sysfs write masks.
std::optional<std::vector<int>> ParseCpuMask(absl::string_view text);

}  // namespace trainctl

#endif  // TRAINCTL_RUNTIME_TOPOLOGY_CPU_LIST_H_
