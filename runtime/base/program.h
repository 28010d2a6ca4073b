// Finding and starting our own programs.
#ifndef TRAINCTL_RUNTIME_BASE_PROGRAM_H_
#define TRAINCTL_RUNTIME_BASE_PROGRAM_H_

#include <sys/types.h>

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "runtime/base/fd.h"
#include "runtime/base/time.h"

namespace trainctl {

// Path of one of our programs: beside the running one, else in ../libexec/trainctl, else in ../bin
// or ../../bin (for a program that itself lies in libexec). NOT_FOUND says where it looked.
absl::StatusOr<std::string> FindProgram(absl::string_view name);

struct Child {
  pid_t pid = 0;
  Fd pidfd;  // readable when it has ended; the parent must wait for it (waitid P_PIDFD)
};
struct StartOptions {
  // Descriptors the program inherits, under the numbers they have here.
  std::vector<int> inherit;
  // Where stdout and stderr go, appended; empty: they stay ours.
  std::string log_file;
  // In a session of its own, so that the terminal's signals do not reach it.
  bool new_session = true;
};
// argv[0] is the path. Stdin is /dev/null; every other descriptor is closed; no signal is blocked
// or ignored. It has our environment, without what systemd meant for us alone
// (unit_environment.h). The program does not die with us.
absl::StatusOr<Child> StartProgram(const std::vector<std::string>& argv,
                                   const StartOptions& options);

// The readiness pipe: `write` goes to the child with `--ready-fd N`, `read` becomes readable when
// the child listens, when it cannot, or when it has died.
struct ReadyPipe {
  Fd read;
  Fd write;
};
absl::StatusOr<ReadyPipe> MakeReadyPipe();
// The child's side, once: OK says that it listens; an error says why it never will. Closes `fd`.
// No-op for -1.
void TellReady(int fd, const absl::Status& status);
// The parent's side, when `read` is readable: what the child told; UNAVAILABLE if it died instead.
absl::Status ReadReady(int read_fd);
// The same after waiting; DEADLINE_EXCEEDED. REQUIRES: the parent's `write` end is closed.
absl::Status AwaitReady(int read_fd, Duration timeout);

}  // namespace trainctl

#endif  // TRAINCTL_RUNTIME_BASE_PROGRAM_H_
