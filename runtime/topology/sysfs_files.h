// Small files of the kernel.
#ifndef TRAINCTL_RUNTIME_TOPOLOGY_SYSFS_FILES_H_
#define TRAINCTL_RUNTIME_TOPOLOGY_SYSFS_FILES_H_

#include <string>
#include <vector>

namespace trainctl {

std::string KernelText(const std::string& path);  // without spaces around; empty: unreadable
int KernelNumber(const std::string& path, int otherwise);
std::string ResolvedPath(const std::string& path);                // empty: nothing there
std::vector<std::string> SortedEntries(const std::string& path);  // numbers by value

}  // namespace trainctl

#endif  // TRAINCTL_RUNTIME_TOPOLOGY_SYSFS_FILES_H_
