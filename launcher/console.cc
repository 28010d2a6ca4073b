#include "launcher/console.h"

#include <limits.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>

namespace trainctl {
namespace {

constexpr int kPollMillis = 100;

bool EndIsPending() {
  sigset_t pending;
  sigpending(&pending);
  for (int signo : {SIGINT, SIGTERM, SIGHUP, SIGQUIT}) {
    if (sigismember(&pending, signo) == 1) {
      return true;
    }
  }
  return false;
}

mode_t KindOf(int fd) {
  struct stat found {};
  return fstat(fd, &found) == 0 ? found.st_mode & S_IFMT : 0;
}

// As much as `fd`, which polls writable, takes without blocking. Whether its writes block is not
// ours to change: others may have the same pipe.
ssize_t WriteSome(int fd, mode_t kind, absl::string_view data) {
  if (kind == S_IFREG) return write(fd, data.data(), data.size());
  if (kind == S_IFIFO) {
    const iovec whole{const_cast<char*>(data.data()), data.size()};
    const ssize_t n = pwritev2(fd, &whole, 1, -1, RWF_NOWAIT);
    if (n >= 0 || (errno != EOPNOTSUPP && errno != ENOSYS)) return n;
  }
  // An older kernel's pipe takes PIPE_BUF bytes then, and no more for sure.
  return write(fd, data.data(), std::min<size_t>(PIPE_BUF, data.size()));
}

}  // namespace

int Console::out_error_ = 0;

Console::Console() : out_is_terminal_(isatty(1) == 1), err_is_terminal_(isatty(2) == 1) {
  signal(SIGPIPE, SIG_IGN);
  const char* no_colour = getenv("NO_COLOR");
  const char* terminal = getenv("TERM");
  const bool dumb = terminal == nullptr || absl::string_view(terminal) == "dumb";
  colour_ = err_is_terminal_ && !dumb && (no_colour == nullptr || *no_colour == '\0');
}

int Console::columns() const {
  winsize size{};
  return ioctl(2, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

void Console::Write(int fd, absl::string_view data, bool* open) {
  const mode_t kind = KindOf(fd);
  while (*open && !data.empty()) {
    pollfd writable{fd, POLLOUT, 0};
    const int ready = poll(&writable, 1, kPollMillis);
    if (ready == 0 || (ready < 0 && errno == EINTR)) {
      *open = !EndIsPending();
      continue;
    }
    const ssize_t n = WriteSome(fd, kind, data);
    if (n > 0) {
      data.remove_prefix(static_cast<size_t>(n));
    } else if (n < 0 && errno != EINTR && errno != EAGAIN) {
      *open = false;
      if (fd != 1) {
        continue;
      }
      if (errno == EPIPE || errno == EIO) {
        reader_gone_ = true;
      } else if (out_error_ == 0) {
        out_error_ = errno;
      }
    }
  }
}

}  // namespace trainctl
