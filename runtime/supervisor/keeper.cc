#include "runtime/supervisor/keeper.h"

#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>

#include "absl/strings/str_cat.h"
#include "runtime/base/errno_status.h"
#include "runtime/base/log.h"
#include "runtime/base/loop.h"
#include "runtime/local/shim_files.h"
#include "runtime/supervisor/containment.h"

namespace trainctl {
namespace {

class Keeper {
 public:
  Keeper(pid_t supervisor, Fd link, const SocketFile& socket, const JobCgroup& cgroup)
      : supervisor_(supervisor), link_(std::move(link)), socket_(socket), cgroup_(cgroup) {}

  int Run() {
    for (const int signo : {SIGTERM, SIGINT}) {
      // It knows whether we are meant.
      loop_.OnSignal(signo, [this](int) { ::kill(supervisor_, SIGTERM); });
    }
    loop_.OnSignal(SIGCHLD, [this](int) { CheckSupervisor(); });
    loop_.Watch(link_.get(), EPOLLIN, [this](uint32_t) { ReadNotes(); });
    CheckSupervisor();
    return loop_.Run();
  }

 private:
  void CheckSupervisor() {
    int status = 0;
    if (::waitpid(supervisor_, &status, WNOHANG) != supervisor_) return;
    supervisor_ = 0;
    const bool clean = WIFEXITED(status) && WEXITSTATUS(status) == 0;
    EndAll(clean ? 0 : 1, clean ? "the supervisor ended" : "the supervisor died");
  }

  void ReadNotes() {
    LeaseNote note;
    ssize_t n;
    while ((n = ::recv(link_.get(), &note, sizeof(note), MSG_DONTWAIT)) == sizeof(note)) {
      loop_.Cancel(timer_);
      if (note.until != kNever) timer_ = loop_.At(note.until, [this] { EndAll(3, "lease over"); });
    }
    // At the end of the link the supervisor is dying, which SIGCHLD tells.
    if (n == 0) loop_.Unwatch(link_.get());
  }

  void EndAll(int status, absl::string_view reason) {
    if (status != 0) LogError("killing every worker and what it started: ", reason);
    if (supervisor_ > 0) ::kill(supervisor_, SIGKILL);
    cgroup_.Kill();
    KillAllDescendants();
    cgroup_.Remove();
    socket_.Remove();
    loop_.Quit(status);
  }

  Loop loop_;
  pid_t supervisor_;
  Fd link_;
  const SocketFile& socket_;
  const JobCgroup& cgroup_;
  Loop::TimerId timer_{};
};

}  // namespace

absl::StatusOr<SocketFile> SocketFile::Of(const std::string& path) {
  struct stat info;
  if (::lstat(path.c_str(), &info) < 0) return ErrnoStatus(errno, absl::StrCat("stat ", path));
  SocketFile file;
  file.path_ = path;
  file.device_ = info.st_dev;
  file.inode_ = info.st_ino;
  return file;
}

void SocketFile::Remove() const {
  struct stat info;
  if (::lstat(path_.c_str(), &info) == 0 && info.st_dev == device_ && info.st_ino == inode_) {
    ::unlink(ShimLock(path_).c_str());  // of whoever started us, and held by us
    ::unlink(path_.c_str());
  }
}

int RunKeeper(pid_t supervisor, Fd link, const SocketFile& socket, const JobCgroup& cgroup) {
  return Keeper(supervisor, std::move(link), socket, cgroup).Run();
}

}  // namespace trainctl
