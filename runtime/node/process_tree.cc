#include "runtime/node/process_tree.h"

#include <map>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "runtime/base/file.h"

namespace trainctl {
namespace {

constexpr size_t kLargestStat = 4096;

// "PID (NAME) STATE PPID …", where NAME may hold anything.
pid_t ParentOf(pid_t pid) {
  const absl::StatusOr<std::string> stat =
      ReadFile(absl::StrCat("/proc/", pid, "/stat"), kLargestStat);
  if (!stat.ok()) return -1;
  const size_t end = stat->rfind(')');
  if (end == std::string::npos) return -1;
  const std::vector<std::string> fields =
      absl::StrSplit(stat->substr(end + 1), ' ', absl::SkipEmpty());
  pid_t parent = -1;
  return fields.size() > 1 && absl::SimpleAtoi(fields[1], &parent) ? parent : -1;
}

}  // namespace

std::vector<pid_t> ProcessTree(pid_t root) {
  std::multimap<pid_t, pid_t> children;
  for (const std::string& name : FolderEntries("/proc")) {
    pid_t pid = 0;
    if (absl::SimpleAtoi(name, &pid)) children.emplace(ParentOf(pid), pid);
  }
  std::vector<pid_t> tree = {root};
  for (size_t i = 0; i < tree.size(); ++i) {
    const auto [begin, end] = children.equal_range(tree[i]);
    for (auto child = begin; child != end; ++child) tree.push_back(child->second);
  }
  return tree;
}

pid_t PidOfPidfd(int pidfd) {
  const absl::StatusOr<std::string> text =
      ReadFile(absl::StrCat("/proc/self/fdinfo/", pidfd), kLargestStat);
  if (!text.ok()) return -1;
  for (const absl::string_view line : absl::StrSplit(*text, '\n')) {
    const std::vector<std::string> words =
        absl::StrSplit(line, absl::ByAnyChar(":\t "), absl::SkipEmpty());
    pid_t pid = -1;
    if (words.size() == 2 && words[0] == "Pid" && absl::SimpleAtoi(words[1], &pid)) return pid;
  }
  return -1;
}

}  // namespace trainctl
