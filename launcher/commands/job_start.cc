#include "launcher/commands/job_start.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/errno_status.h"
#include "runtime/base/fd.h"
#include "runtime/base/file.h"
#include "runtime/base/places.h"
#include "runtime/base/status.h"
#include "runtime/security/cluster_key.h"
#include "runtime/topology/gpu_use.h"

namespace trainctl {
namespace {

absl::Status Unfit(const absl::Status& why) {
  return absl::FailedPreconditionError(
      absl::StrCat("cannot keep the job's state: ", why.message(),
                   "; make it writable, or set XDG_STATE_HOME to a folder that is"));
}

// The folder, and what the front end puts there: the trainer's configuration, and a link to logs
// that lie elsewhere, so that `trainctl logs` finds them.
absl::Status MakeJobFolder(const JobSpec& spec) {
  if (absl::Status made = MakeFolders(FolderOf(spec.job_folder), 0700); !made.ok()) {
    return Unfit(made);
  }
  if (mkdir(spec.job_folder.c_str(), 0700) != 0) {
    return Unfit(ErrnoStatus(errno, absl::StrCat("create folder ", spec.job_folder)));
  }
  return absl::OkStatus();
}

absl::Status FillJobFolder(const LaunchRequest& request) {
  const JobSpec& spec = request.spec;
  const std::string logs = JoinPath(spec.job_folder, "logs");
  if (spec.log_folder != logs) {
    if (absl::Status made = MakeFolders(spec.log_folder); !made.ok()) {
      return absl::FailedPreconditionError(absl::StrCat("--log-dir: ", made.message()));
    }
    if (symlink(spec.log_folder.c_str(), logs.c_str()) != 0) {
      return ErrnoStatus(errno, absl::StrCat("create link ", logs));
    }
  }
  if (!request.train_config.empty()) {
    RETURN_IF_ERROR(
        WriteFileAtomically(JoinPath(spec.job_folder, "train.json"), request.train_config));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<LaunchRequest> ReadRequest(const LaunchFlags& flags) {
  ASSIGN_OR_RETURN(const Surroundings surroundings, SurroundingsNow());
  if (!NamesJobFile(flags)) {
    return MergeLaunch(flags, nullptr, surroundings);
  }
  ASSIGN_OR_RETURN(const JobFile file, ReadJobFile(flags.program.front()));
  return MergeLaunch(flags, &file, surroundings);
}

// The daemon that is to start the job; nullopt: a private one. Where the command is the same on
// every node, so is what it starts there. What a scheduler started stays below it.
absl::StatusOr<std::optional<std::string>> ChooseDaemon(
    const LaunchRequest& request, const std::optional<std::string>& daemon_address) {
  const NodeRole& role = request.role;
  const bool own = role.invited.empty() && (role.several || role.in_scheduler);
  if (own && !daemon_address.has_value()) {
    return std::optional<std::string>();
  }
  return FindDaemon(daemon_address);
}

// Other nodes believe only who proves to be a node of theirs.
absl::Status ChooseTls(const LaunchRequest& request, JobSpec* spec) {
  if (!request.role.several) {
    return absl::OkStatus();
  }
  spec->key_file = request.tls.key;
  spec->tls_certificate = request.tls.certificate;
  spec->tls_private_key = request.tls.private_key;
  spec->tls_authority = request.tls.authority;
  if (spec->key_file.empty() && spec->tls_certificate.empty()) {
    ASSIGN_OR_RETURN(spec->key_file, ChooseKeyFile());
  }
  return absl::OkStatus();
}

absl::Status PrepareGpus(const LaunchRequest& request) {
  if (!request.gpus.has_value()) {
    return absl::OkStatus();
  }
  if (!request.share_gpus) {
    RETURN_IF_ERROR(CheckGpusAreFree(request.gpus->workers.workers));
  }
  for (const std::string& problem : request.gpus->plan.problems) {
    WriteAll(2, absl::StrCat("trainctl: ", problem, "\n"), "stderr").IgnoreError();
  }
  return absl::OkStatus();
}

absl::StatusOr<RunningJob> StartJob(const LaunchRequest& request,
                                    const std::optional<std::string>& daemon_address) {
  RunningJob running;
  JobSpec spec = request.spec;
  RETURN_IF_ERROR(PrepareGpus(request));
  ASSIGN_OR_RETURN(std::optional<std::string> socket, ChooseDaemon(request, daemon_address));
  RETURN_IF_ERROR(ChooseTls(request, &spec));
  RETURN_IF_ERROR(MakeJobFolder(spec));
  auto undo = absl::MakeCleanup([&] {
    if (running.daemon.has_value()) {
      EndDaemon(&*running.daemon);
    }
    std::error_code ignored;
    std::filesystem::remove_all(spec.job_folder, ignored);
    std::filesystem::remove(spec.log_folder, ignored);  // if it is empty
  });
  const std::string daemon_log = JoinPath(spec.job_folder, "traind.log");
  if (!socket.has_value()) {
    ASSIGN_OR_RETURN(running.daemon, StartPrivateDaemon(daemon_log, ""));
  }
  RETURN_IF_ERROR(FillJobFolder(request));
  absl::StatusOr<StartedJob> started = absl::PermissionDeniedError("");
  if (socket.has_value()) {
    started = NodeClient(*socket).Submit(spec, request.role.part);
  }
  // A system daemon that does not let this user in is none.
  if (absl::IsPermissionDenied(started.status()) && !daemon_address.has_value()) {
    if (!running.daemon.has_value()) {
      ASSIGN_OR_RETURN(running.daemon, StartPrivateDaemon(daemon_log, ""));
    }
    RETURN_IF_ERROR(AwaitDaemon(*running.daemon));
    started = NodeClient(running.daemon->socket).Submit(spec, request.role.part);
  }
  ASSIGN_OR_RETURN(running.job, std::move(started));
  std::move(undo).Cancel();
  return running;
}

}  // namespace trainctl
