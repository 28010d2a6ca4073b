#include "runtime/base/program.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "runtime/base/clock.h"
#include "runtime/base/errno_status.h"
#include "runtime/base/file.h"
#include "runtime/base/status.h"
#include "runtime/base/unit_environment.h"

namespace trainctl {
namespace {

// Runs in the forked child of a process that may have threads: system calls only.
[[noreturn]] void RunChild(char* const* argv, char* const* environment,
                           const std::vector<int>& inherit, int null_fd, int log_fd,
                           bool new_session, int error_fd) {
  if (new_session) ::setsid();
  sigset_t none;
  sigemptyset(&none);
  for (int signo = 1; signo < NSIG; ++signo) ::signal(signo, SIG_DFL);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  bool ok = ::dup2(null_fd, 0) == 0;
  if (log_fd >= 0) ok = ok && ::dup2(log_fd, 1) == 1 && ::dup2(log_fd, 2) == 2;
  ok = ok && ::syscall(SYS_close_range, 3u, ~0u, 4u /* CLOSE_RANGE_CLOEXEC */) == 0;
  for (const int fd : inherit) ok = ok && ::fcntl(fd, F_SETFD, 0) == 0;
  if (ok) ::execve(argv[0], argv, environment);
  const int error = errno;
  [[maybe_unused]] const ssize_t n = ::write(error_fd, &error, sizeof(error));
  ::_exit(127);
}

std::vector<char*> OwnEnvironment() {
  std::vector<char*> kept;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const absl::string_view text(*entry);
    if (!BelongsToUnit(text.substr(0, text.find('=')))) kept.push_back(*entry);
  }
  kept.push_back(nullptr);
  return kept;
}

}  // namespace

absl::StatusOr<std::string> FindProgram(absl::string_view name) {
  const std::string here = ProgramFolder();
  std::vector<std::string> tried;
  for (const char* folder : {"", "../libexec/trainctl", "../bin", "../../bin"}) {
    tried.push_back(JoinPath(*folder == '\0' ? here : JoinPath(here, folder), name));
    if (::access(tried.back().c_str(), X_OK) == 0) return tried.back();
  }
  return absl::NotFoundError(
      absl::StrCat("find the program ", name, ": looked for ", absl::StrJoin(tried, ", "),
                   "; reinstall trainctl so that its programs lie together"));
}

absl::StatusOr<Child> StartProgram(const std::vector<std::string>& argv,
                                   const StartOptions& options) {
  std::vector<char*> arguments;
  for (const std::string& argument : argv) {
    arguments.push_back(const_cast<char*>(argument.c_str()));
  }
  arguments.push_back(nullptr);
  std::vector<char*> environment = OwnEnvironment();
  Fd null_fd(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  if (!null_fd.valid()) return ErrnoStatus(errno, "open /dev/null");
  Fd log_fd;
  if (!options.log_file.empty()) {
    log_fd = Fd(::open(options.log_file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
    if (!log_fd.valid()) return ErrnoStatus(errno, absl::StrCat("open ", options.log_file));
  }
  int pipe_fds[2];
  if (::pipe2(pipe_fds, O_CLOEXEC) < 0) return ErrnoStatus(errno, "make a pipe");
  Fd error_read(pipe_fds[0]);
  Fd error_write(pipe_fds[1]);
  // The child shares our memory until it runs the program, which spares the copy of page tables.
  const pid_t pid = ::vfork();
  if (pid < 0) return ErrnoStatus(errno, absl::StrCat("fork for ", argv[0]));
  if (pid == 0) {
    RunChild(arguments.data(), environment.data(), options.inherit, null_fd.get(), log_fd.get(),
             options.new_session, error_write.get());
  }
  error_write.Close();
  int error = 0;
  const ssize_t n = ::read(error_read.get(), &error, sizeof(error));
  if (n == sizeof(error)) {
    ::waitpid(pid, nullptr, 0);
    return ErrnoStatus(error, absl::StrCat("start ", argv[0]));
  }
  Child child{pid, Fd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)))};
  if (!child.pidfd.valid()) return ErrnoStatus(errno, absl::StrCat("watch process ", pid));
  return child;
}

absl::StatusOr<ReadyPipe> MakeReadyPipe() {
  int fds[2];
  if (::pipe2(fds, O_CLOEXEC) < 0) return ErrnoStatus(errno, "make a pipe");
  return ReadyPipe{Fd(fds[0]), Fd(fds[1])};
}

void TellReady(int fd, const absl::Status& status) {
  if (fd < 0) return;
  Fd owned(fd);
  // Below PIPE_BUF, so it is written whole.
  const std::string line =
      absl::StrCat(status.raw_code(), " ", absl::string_view(status.message()).substr(0, 4000));
  [[maybe_unused]] const ssize_t n = ::write(fd, line.data(), line.size());
}

absl::Status ReadReady(int read_fd) {
  char line[4096];
  const ssize_t n = ::read(read_fd, line, sizeof(line));
  if (n <= 0) return absl::UnavailableError("it ended before it was ready");
  const std::pair<absl::string_view, absl::string_view> parts =
      absl::StrSplit(absl::string_view(line, static_cast<size_t>(n)), absl::MaxSplits(' ', 1));
  int code = 0;
  if (!absl::SimpleAtoi(parts.first, &code)) return absl::InternalError("unknown readiness line");
  return absl::Status(static_cast<absl::StatusCode>(code), parts.second);
}

absl::Status AwaitReady(int read_fd, Duration timeout) {
  const Instant deadline = Now() + timeout;
  for (;;) {
    pollfd wait{read_fd, POLLIN, 0};
    const int64_t left = (deadline - Now()).count() / 1'000'000;
    const int n = ::poll(&wait, 1, static_cast<int>(std::max<int64_t>(left, 0)));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return ErrnoStatus(errno, "wait for a program to be ready");
    if (n == 0) return absl::DeadlineExceededError("it did not become ready in time");
    return ReadReady(read_fd);
  }
}

}  // namespace trainctl
