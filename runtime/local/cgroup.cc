#include "runtime/local/cgroup.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "runtime/base/clock.h"
#include "runtime/base/errno_status.h"
#include "runtime/base/file.h"
#include "runtime/base/status.h"

namespace trainctl {
namespace {

constexpr size_t kLongestFile = 1 << 20;
constexpr char kShimLeaf[] = "trainctl-shim";

// Where group `path` of a hierarchy mounted at `point` with `root` at its top is seen; empty if it
// is not below that root.
std::string SeenAt(absl::string_view point, absl::string_view root, absl::string_view path) {
  if (root != "/") {
    if (!absl::StartsWith(path, root)) return {};
    path.remove_prefix(root.size());
    if (!path.empty() && path.front() != '/') return {};
  }
  if (absl::StrContains(path, "/..")) return {};  // above the root of our cgroup namespace
  return path.empty() || path == "/" ? std::string(point) : absl::StrCat(point, path);
}

// The path of our own group in the hierarchy of a version 1 controller, or of version 2 for "".
std::string OwnPath(absl::string_view own, absl::string_view controller) {
  for (const absl::string_view line : absl::StrSplit(own, '\n')) {
    const std::vector<absl::string_view> fields = absl::StrSplit(line, absl::MaxSplits(':', 2));
    if (fields.size() != 3) continue;
    const std::vector<absl::string_view> controllers = absl::StrSplit(fields[1], ',');
    if (std::find(controllers.begin(), controllers.end(), controller) != controllers.end()) {
      return std::string(fields[2]);
    }
  }
  return {};
}

absl::Status WriteTo(const std::string& path, absl::string_view value) {
  const Fd fd(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
  if (!fd.valid()) return ErrnoStatus(errno, absl::StrCat("open ", path));
  if (::write(fd.get(), value.data(), value.size()) < 0) {
    return ErrnoStatus(errno, absl::StrCat("write ", value, " to ", path));
  }
  return absl::OkStatus();
}

// The files are short, and of no size until they are read.
std::string ReadSmall(const std::string& path) {
  const absl::StatusOr<std::string> text = ReadFile(path, kLongestFile);
  return text.ok() ? *text : std::string();
}

bool HasWord(const std::string& path, absl::string_view word) {
  for (const absl::string_view found :
       absl::StrSplit(ReadSmall(path), absl::ByAnyChar(" \n"), absl::SkipEmpty())) {
    if (found == word) return true;
  }
  return false;
}

absl::Status MakeGroup(const std::string& folder) {
  if (::mkdir(folder.c_str(), 0755) < 0 && errno != EEXIST) {
    return ErrnoStatus(errno, absl::StrCat("make the cgroup ", folder));
  }
  return absl::OkStatus();
}

std::vector<std::string> Members(const std::string& folder) {
  return absl::StrSplit(ReadSmall(folder + "/cgroup.procs"), '\n', absl::SkipEmpty());
}

std::string MarkedFolder(const std::string& mark) {
  char target[4096];
  const ssize_t n = ::readlink(mark.c_str(), target, sizeof(target));
  return n > 0 ? std::string(target, static_cast<size_t>(n)) : std::string();
}

// A group with members cannot give controllers to groups below it. Ours may be left for a leaf if
// nobody else is in it, as in a scope of systemd that was made for this job.
absl::Status LeaveForLeaf(const std::string& own) {
  const std::string me = absl::StrCat(::getpid());
  const std::string parent = absl::StrCat(::getppid());
  const std::vector<std::string> members = Members(own);
  for (const std::string& pid : members) {
    if (pid == me || pid == parent) continue;
    return absl::FailedPreconditionError(absl::StrCat("process ", pid, " is in our cgroup ", own,
                                                      " too, which cannot be divided then"));
  }
  const std::string leaf = JoinPath(own, kShimLeaf);
  RETURN_IF_ERROR(MakeGroup(leaf));
  for (const std::string& pid : members) RETURN_IF_ERROR(WriteTo(leaf + "/cgroup.procs", pid));
  return absl::OkStatus();
}

}  // namespace

CgroupFolders ParseCgroupFolders(absl::string_view mountinfo, absl::string_view own) {
  CgroupFolders folders;
  for (const absl::string_view line : absl::StrSplit(mountinfo, '\n')) {
    const std::vector<absl::string_view> halves = absl::StrSplit(line, absl::MaxSplits(" - ", 1));
    if (halves.size() != 2) continue;
    const std::vector<absl::string_view> mount = absl::StrSplit(halves[0], ' ');
    const std::vector<absl::string_view> type = absl::StrSplit(halves[1], ' ');
    if (mount.size() < 5 || type.size() < 3) continue;
    const auto find = [&](absl::string_view controller, std::string* folder) {
      const std::string path = OwnPath(own, controller);
      if (folder->empty() && !path.empty()) *folder = SeenAt(mount[4], mount[3], path);
    };
    if (type[0] == "cgroup2") find("", &folders.unified);
    if (type[0] != "cgroup") continue;
    for (const absl::string_view option : absl::StrSplit(type[2], ',')) {
      if (option == "memory") find("memory", &folders.memory);
      if (option == "pids") find("pids", &folders.pids);
    }
  }
  return folders;
}

CgroupFolders OwnCgroupFolders() {
  return ParseCgroupFolders(ReadSmall("/proc/self/mountinfo"), ReadSmall("/proc/self/cgroup"));
}

absl::StatusOr<JobCgroup> JobCgroup::Make(const CgroupFolders& own, const std::string& name,
                                          const std::string& mark) {
  if (own.unified.empty()) {
    return absl::FailedPreconditionError("no cgroup hierarchy of version 2 is mounted here");
  }
  JobCgroup group;
  group.own_ = own;
  group.name_ = name;
  group.mark_ = mark;
  group.unified_ = JoinPath(own.unified, name);
  RETURN_IF_ERROR(MakeGroup(group.unified_));
  group.unified_fd_ = Fd(::open(group.unified_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  ::unlink(mark.c_str());
  if (!group.unified_fd_.valid() || ::symlink(group.unified_.c_str(), mark.c_str()) < 0) {
    const int error = errno;
    ::rmdir(group.unified_.c_str());
    return ErrnoStatus(error,
                       absl::StrCat("use the cgroup ", group.unified_, ", marked by ", mark));
  }
  group.counts_oom_ = ::access((group.unified_ + "/memory.events").c_str(), R_OK) == 0;
  return group;
}

absl::StatusOr<JobCgroup::Old> JobCgroup::MakeOld(const std::string& own, absl::string_view name) {
  Old old;
  old.folder = JoinPath(own, name);
  RETURN_IF_ERROR(MakeGroup(old.folder));
  const std::string entry = old.folder + "/cgroup.procs";
  old.entry = Fd(::open(entry.c_str(), O_WRONLY | O_CLOEXEC));
  if (!old.entry.valid()) return ErrnoStatus(errno, absl::StrCat("open ", entry));
  return old;
}

absl::Status JobCgroup::EnableController(absl::string_view controller) {
  if (!made()) {
    return absl::FailedPreconditionError("no cgroup of this job could be made");
  }
  const std::string subtree = own_.unified + "/cgroup.subtree_control";
  if (HasWord(subtree, controller)) return absl::OkStatus();
  if (!HasWord(own_.unified + "/cgroup.controllers", controller)) {
    return absl::FailedPreconditionError(
        absl::StrCat("our cgroup ", own_.unified, " has no ", controller,
                     " controller; run traind as the service that comes with it"));
  }
  const std::string enable = absl::StrCat("+", controller);
  if (WriteTo(subtree, enable).ok()) return absl::OkStatus();
  RETURN_IF_ERROR(LeaveForLeaf(own_.unified));
  return WriteTo(subtree, enable);
}

absl::Status JobCgroup::LimitMemory(uint64_t bytes) {
  if (!own_.memory.empty()) {
    ASSIGN_OR_RETURN(memory_, MakeOld(own_.memory, name_));
    RETURN_IF_ERROR(WriteTo(memory_.folder + "/memory.limit_in_bytes", absl::StrCat(bytes)));
    // Without it a worker beyond its limit would only be swapped out; not every kernel counts swap.
    (void)WriteTo(memory_.folder + "/memory.memsw.limit_in_bytes", absl::StrCat(bytes));
    return absl::OkStatus();
  }
  RETURN_IF_ERROR(EnableController("memory"));
  counts_oom_ = true;
  RETURN_IF_ERROR(WriteTo(unified_ + "/memory.max", absl::StrCat(bytes)));
  (void)WriteTo(unified_ + "/memory.swap.max", "0");
  return absl::OkStatus();
}

absl::Status JobCgroup::LimitProcesses(uint64_t count) {
  if (!own_.pids.empty()) {
    ASSIGN_OR_RETURN(pids_, MakeOld(own_.pids, name_));
    return WriteTo(pids_.folder + "/pids.max", absl::StrCat(count));
  }
  RETURN_IF_ERROR(EnableController("pids"));
  return WriteTo(unified_ + "/pids.max", absl::StrCat(count));
}

absl::Status JobCgroup::Limit(const CgroupLimits& limits) {
  const auto apply = [](absl::string_view what, uint64_t value, const absl::Status& status) {
    if (status.ok()) return status;
    return absl::FailedPreconditionError(absl::StrCat(
        "limit the ", what, " of the job's workers to ", value, ": ", status.message()));
  };
  if (limits.memory_bytes > 0) {
    RETURN_IF_ERROR(apply("memory", limits.memory_bytes, LimitMemory(limits.memory_bytes)));
  }
  if (limits.processes > 0) {
    RETURN_IF_ERROR(apply("processes", limits.processes, LimitProcesses(limits.processes)));
  }
  return absl::OkStatus();
}

std::vector<int> JobCgroup::entries() const {
  std::vector<int> fds;
  for (const Old* old : {&memory_, &pids_}) {
    if (old->entry.valid()) fds.push_back(old->entry.get());
  }
  return fds;
}

std::vector<std::string> JobCgroup::OomCounters() const {
  if (!memory_.folder.empty()) return {memory_.folder + "/memory.oom_control"};
  if (counts_oom_) return {unified_ + "/memory.events"};
  // Of the group that the workers share with us and perhaps with others.
  if (!own_.memory.empty()) return {own_.memory + "/memory.oom_control"};
  if (!own_.unified.empty()) return {own_.unified + "/memory.events"};
  return {};
}

void JobCgroup::Kill() const {
  if (made()) (void)WriteTo(unified_ + "/cgroup.kill", "1");  // Linux 5.14; else the walk does it
}

void JobCgroup::Remove() const {
  for (const std::string& folder : {unified_, memory_.folder, pids_.folder}) {
    if (!folder.empty()) ::rmdir(folder.c_str());
  }
  if (made() && MarkedFolder(mark_) == unified_) ::unlink(mark_.c_str());
}

absl::Status SweepMarkedCgroup(const std::string& mark, Duration patience) {
  const std::string folder = MarkedFolder(mark);
  const Instant until = Now() + patience;
  while (!folder.empty() && ::access(folder.c_str(), F_OK) == 0) {
    const std::vector<std::string> left = Members(folder);
    if (left.empty() && ::rmdir(folder.c_str()) == 0) break;
    (void)WriteTo(folder + "/cgroup.kill", "1");
    if (Now() >= until) {
      return absl::DeadlineExceededError(absl::StrCat("kill what a dead train-shim left in ",
                                                      folder, ": still there: pid ",
                                                      absl::StrJoin(left, ", ")));
    }
    ::poll(nullptr, 0, 1);
  }
  // Those of version 1 that limited it have its name, and are empty now.
  const CgroupFolders own = OwnCgroupFolders();
  const std::string name = folder.substr(folder.rfind('/') + 1);
  for (const std::string& old : {own.memory, own.pids}) {
    if (!old.empty() && !name.empty()) ::rmdir(JoinPath(old, name).c_str());
  }
  ::unlink(mark.c_str());
  return absl::OkStatus();
}

}  // namespace trainctl
