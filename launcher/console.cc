#include "launcher/console.h"

#include <limits.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
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

bool IsRegular(int fd) {
  struct stat found {};
  return fstat(fd, &found) == 0 && S_ISREG(found.st_mode);
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
  // A pipe that polls writable takes PIPE_BUF bytes without blocking, and no more for sure.
  const size_t piece = IsRegular(fd) ? data.size() : PIPE_BUF;
  while (*open && !data.empty()) {
    pollfd writable{fd, POLLOUT, 0};
    const int ready = poll(&writable, 1, kPollMillis);
    if (ready == 0 || (ready < 0 && errno == EINTR)) {
      *open = !EndIsPending();
      continue;
    }
    const ssize_t n = write(fd, data.data(), std::min(piece, data.size()));
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
