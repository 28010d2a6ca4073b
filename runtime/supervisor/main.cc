// train-shim: one per job and node. Becomes the keeper and forks the supervisor.
#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/base/errno_status.h"
#include "runtime/base/fd.h"
#include "runtime/base/file.h"
#include "runtime/base/log.h"
#include "runtime/base/program.h"
#include "runtime/base/status.h"
#include "runtime/local/cgroup.h"
#include "runtime/local/shim_files.h"
#include "runtime/supervisor/containment.h"
#include "runtime/supervisor/keeper.h"
#include "runtime/supervisor/options.h"
#include "runtime/supervisor/process.h"
#include "runtime/supervisor/supervisor.h"

namespace trainctl {
namespace {

// Whoever started us may have leaked descriptors; held for a job's life they would keep its
// sockets and locks alive.
void CloseAllBut(std::vector<int> wanted) {
  std::sort(wanted.begin(), wanted.end());
  unsigned first = 3;
  for (const int fd : wanted) {
    if (static_cast<unsigned>(fd) > first) ::close_range(first, static_cast<unsigned>(fd) - 1, 0);
    ::fcntl(fd, F_SETFD, FD_CLOEXEC);
    first = static_cast<unsigned>(fd) + 1;
  }
  ::close_range(first, ~0u, 0);
}

void OpenStandardDescriptors() {
  while (::open("/dev/null", O_RDWR) < 3) {
  }
}

// From here on nobody listens to our stdio; what is said goes to the job's folder.
void DetachStdio(const std::string& folder) {
  const Fd null(::open("/dev/null", O_RDWR | O_CLOEXEC));
  const Fd log(::open(JoinPath(folder, "shim.log").c_str(),
                      O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600));
  ::dup2(null.get(), 0);
  ::dup2(log.valid() ? log.get() : null.get(), 1);
  ::dup2(log.valid() ? log.get() : null.get(), 2);
}

void BlockSignals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int signo : {SIGTERM, SIGINT, SIGCHLD}) sigaddset(&set, signo);
  ::sigprocmask(SIG_BLOCK, &set, nullptr);
  // An inherited "ignore" would make the kernel reap children without us.
  ::signal(SIGCHLD, SIG_DFL);
  ::signal(SIGHUP, SIG_IGN);
  ::signal(SIGPIPE, SIG_IGN);
  ::signal(SIGXFSZ, SIG_IGN);  // a file size limit is then an error like a full disk
}

absl::StatusOr<SlotPages> MakePages(int slots) {
  SlotPages pages;
  pages.keeper = ::getpid();
  for (int i = 0; i < slots; ++i) {
    int fd = -1;
    ASSIGN_OR_RETURN(MappedPage page, MappedPage::Create(&fd));
    pages.fds.push_back(fd);
    pages.pages.push_back(std::move(page));
  }
  return pages;
}

// systemd moves us into a scope; if that takes too long, it is not waited for.
void AwaitScope(int fd) {
  constexpr int kPatienceMs = 6000;  // longer than the daemon's, who knows why
  const Fd owned(fd);
  pollfd wait{fd, POLLIN, 0};
  if (::poll(&wait, 1, kPatienceMs) == 0) LogWarning("nobody says whether we are in our scope");
}

// Its name has our pid: the shim of the same job before us may not be quite gone.
JobCgroup MakeCgroup(const ShimOptions& options) {
  absl::StatusOr<JobCgroup> made =
      JobCgroup::Make(OwnCgroupFolders(), absl::StrCat("trainctl-", options.job, ".", ::getpid()),
                      CgroupMark(options.socket));
  if (made.ok()) return *std::move(made);
  LogInfo("without a cgroup of our own: ", made.status().message());
  return JobCgroup();
}

int RunSupervisor(Supervisor::Kept kept) {
  ::prctl(PR_SET_NAME, "shim-supervisor");
  // A keeper that dies wakes us even if we are stopped; its pidfd then says what happened.
  ::prctl(PR_SET_PDEATHSIG, SIGCONT);
  // The pages are mapped; their descriptors are the keeper's.
  for (const int fd : kept.pages.fds) ::close(fd);
  if (const absl::Status status = MakeSubreaper(); !status.ok()) {
    LogError(status.message());
    return 1;
  }
  return Supervisor(std::move(kept)).Run();
}

absl::StatusOr<int> Run(const ShimOptions& options) {
  RaiseDescriptorLimit();
  ASSIGN_OR_RETURN(SlotPages pages, MakePages(options.slots));
  RETURN_IF_ERROR(MakeSubreaper());
  int link[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, link) < 0) {
    return ErrnoStatus(errno, "create the link between keeper and supervisor");
  }
  Fd keeper_end(link[0]);
  Fd supervisor_end(link[1]);
  Fd keeper_pidfd(static_cast<int>(::syscall(SYS_pidfd_open, ::getpid(), 0)));
  if (!keeper_pidfd.valid()) return ErrnoStatus(errno, "open a pidfd of the keeper");
  // Last of what can fail, because it leaves a file.
  ASSIGN_OR_RETURN(Fd listener, ListenUnix(options.socket, 0600));
  ASSIGN_OR_RETURN(const SocketFile socket_file, SocketFile::Of(options.socket));
  ::setsid();  // fails harmlessly if whoever started us did it
  DetachStdio(options.folder);
  if (options.scope_fd >= 0) AwaitScope(options.scope_fd);
  JobCgroup cgroup = MakeCgroup(options);
  const pid_t supervisor = ::fork();
  if (supervisor < 0) {
    const int error = errno;
    socket_file.Remove();
    cgroup.Remove();
    return ErrnoStatus(error, "fork the supervisor");
  }
  if (options.ready_fd >= 0) ::close(options.ready_fd);
  if (supervisor == 0) {
    keeper_end.Close();
    return RunSupervisor(Supervisor::Kept{options, std::move(pages), std::move(listener),
                                          std::move(supervisor_end), std::move(keeper_pidfd),
                                          socket_file, std::move(cgroup)});
  }
  ::prctl(PR_SET_NAME, "shim-keeper");
  listener.Close();
  supervisor_end.Close();
  keeper_pidfd.Close();
  if (options.daemon_fd >= 0) ::close(options.daemon_fd);
  return RunKeeper(supervisor, std::move(keeper_end), socket_file, cgroup);
}

constexpr char kHelp[] =
    "train-shim: holds the workers of one job on one node. Started by traind; trainctl stop ends "
    "the job.\n\nFlags: --job ID --socket PATH --folder DIR --slots N [--lease TIME] "
    "[--daemon-fd FD] [--scope-fd FD] [--hold-fds FD,…]\n\nExit status: 0 the job left this node; "
    "1 failed; "
    "2 wrong use.\n";

int Main(int argc, char** argv) {
  OpenStandardDescriptors();
  InitLog("train-shim");
  if (argc == 2 && (absl::string_view(argv[1]) == "--help" || absl::string_view(argv[1]) == "-h")) {
    return WriteAll(1, kHelp, "stdout").ok() ? 0 : 1;
  }
  const absl::StatusOr<ShimOptions> options = ParseShimOptions(argc, argv);
  if (!options.ok()) {
    LogError(options.status().message());
    return 2;
  }
  std::vector<int> wanted = options->hold_fds;
  if (options->daemon_fd >= 0) wanted.push_back(options->daemon_fd);
  if (options->ready_fd >= 0) wanted.push_back(options->ready_fd);
  if (options->scope_fd >= 0) wanted.push_back(options->scope_fd);
  CloseAllBut(wanted);
  BlockSignals();
  const absl::StatusOr<int> status = Run(*options);
  if (!status.ok()) {
    LogError("start the shim of job ", options->job, ": ", status.status().message());
    TellReady(options->ready_fd, status.status());
    return 1;
  }
  return *status;
}

}  // namespace
}  // namespace trainctl

int main(int argc, char** argv) { return trainctl::Main(argc, argv); }
