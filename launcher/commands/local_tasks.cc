#include "launcher/commands/local_tasks.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "launcher/commands/exit_status.h"
#include "runtime/base/clock.h"
#include "runtime/base/errno_status.h"
#include "runtime/base/file.h"
#include "runtime/base/places.h"
#include "runtime/base/status.h"

namespace trainctl {
namespace {

// One file for each start of a step on a node; it appears locked.
std::string PathOf(const NodeIdentity& identity) {
  std::string name = absl::StrCat(identity.scheduler, "-", identity.job_id, "-", identity.requeues,
                                  "-", identity.node_rank, ".tasks");
  for (char& c : name) {
    if (c == '/' || c == ' ') c = '_';
  }
  return JoinPath(SocketFolder(), name);
}

// Each task is bound to its own processors; together they have those of all.
void TakeAllProcessors() {
  cpu_set_t all;
  std::memset(&all, 0xff, sizeof all);
  sched_setaffinity(0, sizeof all, &all);  // the kernel leaves out what the step may not use
}

}  // namespace

absl::Status FirstTask::Begin(const NodeIdentity& identity) {
  if (identity.local_tasks < 2) {
    return absl::OkStatus();
  }
  TakeAllProcessors();
  RETURN_IF_ERROR(MakePrivateFolder(SocketFolder()));
  const std::string path = PathOf(identity);
  const std::string temporary = absl::StrCat(path, ".", getpid());
  file_ = Fd(open(temporary.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  if (!file_.valid() || flock(file_.get(), LOCK_EX) < 0 ||
      rename(temporary.c_str(), path.c_str()) < 0) {
    return ErrnoStatus(errno, absl::StrCat("create ", path));
  }
  return absl::OkStatus();
}

void FirstTask::End(int status) {
  if (file_.valid()) {
    WriteAll(file_.get(), absl::StrCat(status), "the other tasks").IgnoreError();
    file_.Close();
  }
}

int FollowFirstTask(const NodeIdentity& identity, Duration patience) {
  const std::string path = PathOf(identity);
  const Instant give_up = Now() + patience;
  Fd file;
  for (;;) {
    file = Fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (file.valid()) {
      break;
    }
    if (Now() >= give_up) {
      return Fail(absl::UnavailableError(
          absl::StrCat("task 0 on this node did not begin within ", ToSeconds(patience), " s")));
    }
    absl::SleepFor(absl::Milliseconds(50));
  }
  while (flock(file.get(), LOCK_SH) < 0 && errno == EINTR) {
  }
  char text[16] = {};
  int status = kExitFailed;
  if (read(file.get(), text, sizeof text - 1) <= 0 || !absl::SimpleAtoi(text, &status)) {
    return Fail(absl::UnavailableError("task 0 on this node was killed"));
  }
  return status;
}

}  // namespace trainctl
