#include "runtime/topology/sysfs_files.h"

#include <limits.h>
#include <stdlib.h>

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "runtime/base/file.h"

namespace trainctl {

std::string KernelText(const std::string& path) {
  constexpr size_t kMost = size_t{4} << 20;  // /proc/cpuinfo of hundreds of CPUs
  const absl::StatusOr<std::string> text = ReadFile(path, kMost);
  return text.ok() ? std::string(absl::StripAsciiWhitespace(*text)) : "";
}

int KernelNumber(const std::string& path, int otherwise) {
  int number;
  return absl::SimpleAtoi(KernelText(path), &number) ? number : otherwise;
}

std::string ResolvedPath(const std::string& path) {
  char resolved[PATH_MAX];
  return ::realpath(path.c_str(), resolved) == nullptr ? "" : resolved;
}

std::vector<std::string> SortedEntries(const std::string& path) {
  std::vector<std::string> names = FolderEntries(path);
  std::sort(names.begin(), names.end(), [](const std::string& a, const std::string& b) {
    int x, y;
    const bool numbers = absl::SimpleAtoi(a, &x) && absl::SimpleAtoi(b, &y);
    return numbers ? x < y : a < b;
  });
  return names;
}

}  // namespace trainctl
