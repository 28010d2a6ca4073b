#include <fcntl.h>
#include <sys/file.h>

#include <cerrno>
#include <filesystem>
#include <optional>
#include <string>
#include <system_error>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "launcher/commands/attach.h"
#include "launcher/commands/commands.h"
#include "launcher/commands/exit_status.h"
#include "launcher/job_lookup.h"
#include "launcher/node_client.h"
#include "launcher/update_json.h"
#include "runtime/base/errno_status.h"
#include "runtime/base/fd.h"
#include "runtime/base/file.h"
#include "runtime/base/places.h"
#include "runtime/base/status.h"

namespace trainctl {
namespace {

// A job that is over never runs again: what it left is shown.
int ShowReport(const KnownJob& job, bool json) {
  absl::StatusOr<ReportSeen> report = ReadReport(job);
  if (!report.ok()) {
    return Fail(report.status());
  }
  Console console;
  if (json) {
    console.Out(UpdateJson(
        JobEnded{report->outcome, report->exit_status, report->reason, ReportPath(job), ""}));
  } else {
    console.Out(absl::StrCat("job ", job.id, " is over: ", report->outcome,
                             report->reason.empty() ? "" : ": ", report->reason, "\n  report  ",
                             ReportPath(job), "\n"));
  }
  return report->outcome == "succeeded" ? kExitDone : kExitFailed;
}

struct Revived {
  StartedJob job;
  std::optional<PrivateDaemon> daemon;
};

// True if the daemon that the job belongs to (the link in its folder) is gone.
bool DaemonIsGone(const KnownJob& job) {
  std::error_code error;
  const std::filesystem::path socket =
      std::filesystem::read_symlink(JoinPath(job.folder, "daemon"), error);
  return !error && absl::IsUnavailable(ConnectUnix(socket.string()).status());
}

absl::StatusOr<PrivateDaemon> StartAdoptingDaemon(const KnownJob& job) {
  ASSIGN_OR_RETURN(PrivateDaemon daemon,
                   StartPrivateDaemon(JoinPath(job.folder, "traind.log"), job.id));
  RETURN_IF_ERROR(AwaitDaemon(daemon));
  return daemon;
}

// Of several who take a job over at once, one does it; the others attach to what it started.
absl::StatusOr<Fd> LockFolder(const std::string& folder) {
  Fd fd(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd.valid()) return ErrnoStatus(errno, absl::StrCat("open ", folder));
  while (flock(fd.get(), LOCK_EX) < 0) {
    if (errno != EINTR) return ErrnoStatus(errno, absl::StrCat("lock ", folder));
  }
  return fd;
}

// Makes sure that the job has a coordinator, and a daemon that watches it.
absl::StatusOr<Revived> Revive(const KnownJob& job, const std::optional<std::string>& address) {
  ASSIGN_OR_RETURN(const Fd lock, LockFolder(job.folder));
  Revived revived;
  if (CoordinatorListens(job.id)) {
    revived.job = StartedJob{job.id, job.folder, JobSocket(job.id)};
    if (DaemonIsGone(job)) {
      ASSIGN_OR_RETURN(revived.daemon, StartAdoptingDaemon(job));
    }
    return revived;
  }
  ASSIGN_OR_RETURN(std::optional<std::string> socket, FindDaemon(address));
  if (!socket.has_value()) {
    ASSIGN_OR_RETURN(revived.daemon, StartAdoptingDaemon(job));
    socket = revived.daemon->socket;
  }
  NodeClient client(*socket);
  absl::StatusOr<StartedJob> started = client.Resume(job.folder);
  if (!started.ok()) {
    if (revived.daemon.has_value()) {
      EndDaemon(&*revived.daemon);
    }
    return started.status();
  }
  revived.job = *std::move(started);
  return revived;
}

}  // namespace

int RunResume(const JobFlags& flags) {
  absl::StatusOr<KnownJob> job = FindJob(StateFolder(), flags.job);
  if (!job.ok()) {
    return Fail(job.status());
  }
  if (IsOver(*job)) {
    return ShowReport(*job, flags.json);
  }
  Attachment attachment(DisplayOptions{flags.json, {}});
  absl::StatusOr<Revived> revived = Revive(*job, flags.daemon);
  if (!revived.ok()) {
    return Fail(revived.status());
  }
  return attachment.Stay(revived->job, std::move(revived->daemon), /*came_back=*/true);
}

}  // namespace trainctl
