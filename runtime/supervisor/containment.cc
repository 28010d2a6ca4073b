#include "runtime/supervisor/containment.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <map>
#include <optional>

#include "absl/strings/str_cat.h"
#include "runtime/base/errno_status.h"
#include "runtime/base/fd.h"
#include "runtime/base/file.h"

namespace trainctl {
namespace {

constexpr size_t kLongestProcFile = 64 * 1024;

std::vector<Descendant> ListAllProcesses() {
  std::vector<Descendant> all;
  DIR* folder = ::opendir("/proc");
  if (folder == nullptr) return all;
  while (const dirent* entry = ::readdir(folder)) {
    const char* end = entry->d_name + std::strlen(entry->d_name);
    pid_t pid = 0;
    if (std::from_chars(entry->d_name, end, pid).ptr != end) continue;
    if (std::optional<Descendant> process = ReadProcess(pid)) all.push_back(*process);
  }
  ::closedir(folder);
  return all;
}

}  // namespace

std::optional<Descendant> ReadProcess(pid_t pid) {
  char path[32];
  std::snprintf(path, sizeof(path), "/proc/%d/stat", pid);
  const Fd fd(::open(path, O_RDONLY | O_CLOEXEC));
  char text[512];
  const ssize_t n = fd.valid() ? ::read(fd.get(), text, sizeof(text) - 1) : -1;
  if (n <= 0) return std::nullopt;
  text[n] = '\0';
  // The name is in parentheses and may itself hold any byte: fields are counted from its end.
  const char* after_name = std::strrchr(text, ')');
  Descendant process;
  if (after_name == nullptr || std::sscanf(after_name + 1, " %c %d %d", &process.state,
                                           &process.parent, &process.group) != 3) {
    return std::nullopt;
  }
  process.pid = pid;
  return process;
}

std::string ReadProc(const std::string& path) {
  absl::StatusOr<std::string> text = ReadFile(path, kLongestProcFile);
  if (!text.ok()) return {};
  if (!text->empty() && text->back() == '\n') text->pop_back();
  return *std::move(text);
}

absl::Status MakeSubreaper() {
  if (::prctl(PR_SET_CHILD_SUBREAPER, 1) < 0) return ErrnoStatus(errno, "become a subreaper");
  return absl::OkStatus();
}

std::vector<Descendant> ListDescendants() { return ListDescendantsOf(::getpid()); }

std::vector<Descendant> ListDescendantsOf(pid_t pid) {
  std::multimap<pid_t, Descendant> by_parent;
  for (const Descendant& process : ListAllProcesses()) by_parent.emplace(process.parent, process);
  std::vector<Descendant> found;
  pid_t parent = pid;
  for (size_t next = 0;; ++next) {
    const auto [begin, end] = by_parent.equal_range(parent);
    for (auto it = begin; it != end; ++it) found.push_back(it->second);
    // A listing that is not atomic could in theory hold a cycle; each parent is followed once.
    by_parent.erase(begin, end);
    if (next == found.size()) return found;
    parent = found[next].pid;
  }
}

void SignalDescendants(std::initializer_list<int> signos,
                       const std::function<bool(const Descendant&)>& wanted) {
  for (const Descendant& process : ListDescendants()) {
    if (process.zombie() || !wanted(process)) continue;
    const Fd pidfd(static_cast<int>(::syscall(SYS_pidfd_open, process.pid, 0)));
    if (!pidfd.valid()) continue;
    const std::optional<Descendant> again = ReadProcess(process.pid);
    // Its parent may have ended, perhaps by our signal, which makes it our child.
    const bool ours =
        again.has_value() && (again->parent == process.parent || again->parent == ::getpid());
    if (!ours) continue;
    for (const int signo : signos) {
      ::syscall(SYS_pidfd_send_signal, pidfd.get(), signo, nullptr, 0);
    }
  }
}

bool ReapChildren(const std::function<void(const Reaped&)>& ended,
                  const std::function<void(pid_t, bool stopped)>& changed) {
  for (;;) {
    int status = 0;
    const pid_t pid = ::waitpid(-1, &status, WNOHANG | WUNTRACED | WCONTINUED);
    if (pid < 0 && errno == EINTR) continue;
    if (pid < 0) return false;
    if (pid == 0) return true;
    if (WIFSTOPPED(status) || WIFCONTINUED(status)) {
      changed(pid, WIFSTOPPED(status));
      continue;
    }
    Reaped reaped;
    reaped.pid = pid;
    reaped.signaled = WIFSIGNALED(status);
    reaped.code = reaped.signaled ? WTERMSIG(status) : WEXITSTATUS(status);
    reaped.core = reaped.signaled && WCOREDUMP(status);
    ended(reaped);
  }
}

std::string DescribeDescendants() {
  std::string text;
  for (const Descendant& process : ListDescendants()) {
    const std::string folder = absl::StrCat("/proc/", process.pid);
    absl::StrAppend(&text, text.empty() ? "" : "; ", "pid ", process.pid, " (",
                    ReadProc(folder + "/comm"), "), state ", absl::string_view(&process.state, 1));
    // "0" while it runs, and for readers who may not know.
    const std::string place = ReadProc(folder + "/wchan");
    if (!place.empty() && place != "0") absl::StrAppend(&text, ", in ", place);
  }
  return text;
}

void KillAllDescendants() {
  sigset_t child;
  sigemptyset(&child);
  sigaddset(&child, SIGCHLD);
  long wait_ns = 1'000'000;
  while (ReapChildren([](const Reaped&) {}, [](pid_t, bool) {})) {
    SignalDescendants({SIGKILL}, [](const Descendant&) { return true; });
    const timespec wait{0, wait_ns};
    // Ends early at each death; the bound covers what was forked during the listing.
    ::sigtimedwait(&child, nullptr, &wait);
    wait_ns = std::min(wait_ns * 2, 100'000'000L);
  }
}

}  // namespace trainctl
