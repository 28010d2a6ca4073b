#include "runtime/node/daemon.h"

#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <map>
#include <memory>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "launcher/coordinator/spec.h"
#include "runtime/base/clock.h"
#include "runtime/base/errno_status.h"
#include "runtime/base/file.h"
#include "runtime/base/log.h"
#include "runtime/base/places.h"
#include "runtime/base/status.h"
#include "runtime/local/shim_files.h"
#include "runtime/node/job_folders.h"
#include "runtime/node/part.h"
#include "runtime/node/shim_sweep.h"

namespace trainctl {
namespace {

// A private daemon that nobody gave a job to.
constexpr Duration kIdleLimit = seconds(20);
constexpr Duration kSuccessorPatience = seconds(5);
constexpr size_t kMaxJobs = 256;
constexpr size_t kMaxSpecBytes = 8 << 20;

std::string RandomJobId() {
  static constexpr char kLetters[] = "abcdefghijkmnpqrstuvwxyz23456789";  // 32, none alike
  uint8_t bytes[8];
  if (::getrandom(bytes, sizeof(bytes), 0) != sizeof(bytes)) {
    return absl::StrCat("j", WallClockNanos());
  }
  std::string id;
  for (const uint8_t byte : bytes) id.push_back(kLetters[byte % 32]);
  return id;
}

std::string SpecPath(const std::string& job_folder) { return JoinPath(job_folder, "spec.pb"); }

bool IsDead(const std::string& socket) { return absl::IsUnavailable(ConnectUnix(socket).status()); }

// Removes what private daemons and shims that were killed have left. What is young may belong to
// one that is about to listen. Takes a second at most: nothing else is done meanwhile.
void SweepDeadSockets() {
  constexpr int64_t kYoungSeconds = 60;
  const Instant until = Now() + seconds(1);
  for (const std::string& name : FolderEntries(SocketFolder())) {
    const std::string path = JoinPath(SocketFolder(), name);
    struct stat info;
    if (::lstat(path.c_str(), &info) < 0) continue;
    if (info.st_mtime + kYoungSeconds > WallClockNanos() / 1'000'000'000) continue;
    if (const std::string shim = ShimOf(path); !shim.empty()) {
      const absl::Status swept = SweepShim(shim, std::max(until - Now(), Duration(0)));
      if (!swept.ok() && !absl::IsUnavailable(swept)) LogWarning(swept.message());
    } else if (absl::StartsWith(name, "private-") && IsDead(path)) {
      ::unlink(path.c_str());
    }
  }
}

// Of coordinators that nobody listens at any more: path and inode. One that was just killed has a
// successor within a second, with another socket under the same name.
std::map<std::string, ino_t> DeadJobSockets() {
  std::map<std::string, ino_t> dead;
  for (const std::string& name : FolderEntries(SocketFolder())) {
    const std::string path = JoinPath(SocketFolder(), name);
    struct stat info;
    if (IsJobSocket(path) && ::lstat(path.c_str(), &info) == 0 && IsDead(path)) {
      dead[path] = info.st_ino;
    }
  }
  return dead;
}

void RemoveIfStillDead(const std::map<std::string, ino_t>& sockets) {
  for (const auto& [path, inode] : sockets) {
    struct stat info;
    if (::lstat(path.c_str(), &info) == 0 && info.st_ino == inode && IsDead(path)) {
      ::unlink(path.c_str());
    }
  }
}

bool IsFrontEnd(pid_t pid) {
  std::error_code unknown;
  return std::filesystem::read_symlink(absl::StrCat("/proc/", pid, "/exe"), unknown).filename() ==
         "trainctl";
}

}  // namespace

Daemon::Daemon(Loop* loop, DaemonOptions options)
    : loop_(loop), options_(std::move(options)), facts_(ThisNode(options_.node)) {}

absl::Status Daemon::Begin() {
  if (!options_.adopt.empty()) {
    ASSIGN_OR_RETURN(Task task,
                     LoadJob(FollowJob(JobFolder(options_.state_folder, options_.adopt))));
    SetOwner(task.job.folder, options_.socket);
    Run(std::move(task), false, std::nullopt);
  } else if (!options_.private_daemon) {
    AdoptLivingJobs();
    AdoptLivingParts();
  }
  loop_->After(seconds(1), [this] {  // not while a launch waits
    SweepDeadSockets();
    loop_->After(kSuccessorPatience, [dead = DeadJobSockets()] { RemoveIfStillDead(dead); });
  });
  if (options_.private_daemon) {
    loop_->After(kIdleLimit, [this] { EndIfIdle(); });
  }
  return absl::OkStatus();
}

void Daemon::AdoptLivingJobs() {
  const std::string folder = FolderOf(JobFolder(options_.state_folder, "x"));
  for (const std::string& job_id : FolderEntries(folder)) {
    const std::string job_folder = FollowJob(JoinPath(folder, job_id));
    const bool lives = ConnectUnix(ShimSocket(job_id)).ok() || ConnectUnix(JobSocket(job_id)).ok();
    if (!lives || !IsOwner(job_folder, options_.socket)) continue;
    absl::StatusOr<Task> task = LoadJob(job_folder);
    if (task.ok()) {
      Run(*std::move(task), false, std::nullopt);
    } else {
      LogWarning("job ", job_id, " runs, but cannot be taken over: ", task.status().message());
    }
  }
}

Daemon::Task Daemon::TaskOf(const v1::JobSpec& spec, const v1::NodePart& part) const {
  JobRunner::Job job;
  job.job_id = spec.job_id();
  job.folder = spec.job_folder();
  job.shim_socket = ShimSocket(spec.job_id());
  job.slots = part.slots() > 0 ? part.slots() : spec.workers_per_node();
  job.lease = Duration(spec.lease_ns());
  job.gpus.assign(spec.gpus().begin(), spec.gpus().end());
  job.binding = BindingOf(part);
  return {std::move(job), FactsFor(facts_, part, spec.listen())};
}

absl::StatusOr<Daemon::Task> Daemon::LoadJob(const std::string& job_folder) const {
  ASSIGN_OR_RETURN(const std::string bytes, ReadFile(SpecPath(job_folder), kMaxSpecBytes));
  v1::JobSpec spec;
  if (!spec.ParseFromString(bytes) || spec.job_id().empty()) {
    return absl::DataLossError(absl::StrCat("read ", SpecPath(job_folder), ": it is damaged"));
  }
  if (spec.job_folder() != job_folder) {
    return absl::FailedPreconditionError(
        absl::StrCat("the job in ", job_folder, " was made for ", spec.job_folder(),
                     "; a job's folder must not be moved while it is to run"));
  }
  ASSIGN_OR_RETURN(const v1::NodePart part, LoadPart(job_folder));
  return TaskOf(spec, part);
}

absl::StatusOr<Daemon::Task> Daemon::MakeJob(v1::JobSpec spec, v1::NodePart part) const {
  if (spec.job_id().empty()) spec.set_job_id(RandomJobId());
  if (spec.job_id().find('/') != std::string::npos || spec.job_id()[0] == '.' ||
      spec.job_id().size() > 40) {
    return absl::InvalidArgumentError(
        absl::StrCat("job id \"", spec.job_id(), "\": at most 40 bytes, no / and no leading dot"));
  }
  const int slots = part.slots() > 0 ? part.slots() : spec.workers_per_node();
  if (slots < 1 || slots > kMaxWorkersPerNode) {
    return absl::InvalidArgumentError(
        absl::StrCat("workers on this node: ", slots, "; give 1 to ", kMaxWorkersPerNode));
  }
  if (spec.job_folder().empty()) {
    spec.set_job_folder(JobFolder(options_.state_folder, spec.job_id()));
  }
  if (spec.log_folder().empty()) spec.set_log_folder(JoinPath(spec.job_folder(), "logs"));
  if (spec.job_folder()[0] != '/' || spec.log_folder()[0] != '/') {
    return absl::InvalidArgumentError(absl::StrCat("the folders of a job must be absolute paths: ",
                                                   spec.job_folder(), ", ", spec.log_folder()));
  }
  struct stat info;
  if (::lstat(SpecPath(spec.job_folder()).c_str(), &info) == 0) {
    return absl::AlreadyExistsError(absl::StrCat("there is a job in ", spec.job_folder(),
                                                 " already; resume it or choose another id"));
  }
  RETURN_IF_ERROR(MakePrivateFolder(spec.job_folder()));
  RETURN_IF_ERROR(MakeFolders(spec.log_folder()));
  SetOwner(spec.job_folder(), options_.socket);
  LinkJob(JobFolder(options_.state_folder, spec.job_id()), spec.job_folder());
  spec.set_head(part.node().empty() ? facts_.node : part.node());
  part.set_folder(spec.job_folder());
  RETURN_IF_ERROR(SavePart(part));
  RETURN_IF_ERROR(WriteFileAtomically(SpecPath(spec.job_folder()), spec.SerializeAsString()));
  return TaskOf(spec, part);
}

absl::Status Daemon::CheckRoom(const std::string& job_id) const {
  if (options_.private_daemon && !jobs_.empty()) {
    return absl::FailedPreconditionError("a private daemon runs one job only");
  }
  if (jobs_.size() >= kMaxJobs) {
    return absl::ResourceExhaustedError(
        absl::StrCat("this node runs ", jobs_.size(), " jobs, the most it takes"));
  }
  if (jobs_.count(job_id) != 0) {
    return absl::AlreadyExistsError(absl::StrCat("job ", job_id, " runs here already"));
  }
  return absl::OkStatus();
}

void Daemon::Submit(const v1::SubmitRequest& request, Reply<v1::SubmitReply> reply) {
  const absl::Status room = CheckRoom(request.spec().job_id());
  if (!room.ok()) return reply.Fail(room);
  absl::StatusOr<Task> task = MakeJob(request.spec(), request.part());
  if (!task.ok()) return reply.Fail(task.status());
  Run(*std::move(task), true, std::move(reply));
}

void Daemon::Resume(const v1::ResumeRequest& request, Reply<v1::SubmitReply> reply) {
  absl::StatusOr<Task> task =
      LoadJob(request.job_folder().empty() ? JobFolder(options_.state_folder, request.job_id())
                                           : request.job_folder());
  if (!task.ok()) return reply.Fail(task.status());
  const JobRunner::Job& job = task->job;
  if (const auto found = jobs_.find(job.job_id); found != jobs_.end()) {
    v1::SubmitReply answer;
    answer.set_job_id(job.job_id);
    answer.set_job_folder(job.folder);
    answer.set_job_socket(found->second->job_socket());
    return reply.Send(std::move(answer));
  }
  SetOwner(job.folder, options_.socket);
  LinkJob(JobFolder(options_.state_folder, job.job_id), job.folder);
  Run(*std::move(task), false, std::move(reply));
}

void Daemon::Run(Task task, bool is_new, std::optional<Reply<v1::SubmitReply>> reply) {
  task.job.scope = options_.scopes;
  const std::string job_id = task.job.job_id;
  v1::SubmitReply answer;
  answer.set_job_id(job_id);
  answer.set_job_folder(task.job.folder);
  answer.set_job_socket(JobSocket(job_id));
  // std::function must be copyable; the reply is not.
  auto owed = std::make_shared<std::optional<Reply<v1::SubmitReply>>>(std::move(reply));
  JobRunner::Callbacks callbacks;
  callbacks.on_listening = [this, answer, owed, is_new](const absl::Status& status) {
    if (!owed->has_value()) return;
    if (status.ok()) {
      (*owed)->Send(answer);
    } else {
      if (is_new) never_began_.insert(answer.job_id());
      (*owed)->Fail(status);
    }
    owed->reset();
  };
  callbacks.on_standing = [this, job_id](const v1::PartUpdate& update) {
    Standing(job_id, update);
  };
  callbacks.on_vanish = [this] {
    // A front end that lives would start the next daemon. Ours may be gone: then our parent is
    // whoever takes in orphans.
    const pid_t parent = ::getppid();
    if (options_.private_daemon && IsFrontEnd(parent)) ::kill(parent, SIGKILL);
    ::kill(::getpid(), SIGKILL);
  };
  // Not now: the runner is still at work.
  callbacks.on_over = [this, job_id] { loop_->Post([this, job_id] { JobOver(job_id); }); };
  auto runner = std::make_unique<JobRunner>(loop_, std::move(task.facts), std::move(task.job),
                                            std::move(callbacks));
  JobRunner& begun = *runner;
  jobs_[job_id] = std::move(runner);
  begun.Begin();
}

void Daemon::JobOver(const std::string& job_id) {
  const std::string folder = jobs_[job_id]->job().folder;
  jobs_.erase(job_id);
  if (const auto owner = owners_.find(job_id); owner != owners_.end()) {
    owner->second->End([this] { EndIfIdle(); });
    owners_.erase(owner);
    return;
  }
  UnlinkJob(JobFolder(options_.state_folder, job_id));
  // What was asked could not be begun, and whoever asked knows why. Nothing outside our own folder
  // is touched.
  if (never_began_.erase(job_id) != 0 && folder == JobFolder(options_.state_folder, job_id)) {
    std::error_code ignored;
    std::filesystem::remove_all(folder, ignored);
  }
  EndIfIdle();
}

void Daemon::EndIfIdle() {
  if (options_.private_daemon && jobs_.empty()) loop_->Quit(0);
}

v1::NodeDescription Daemon::Describe() const {
  v1::NodeDescription description;
  description.set_node(facts_.node);
  description.set_version(TRAINCTL_VERSION);
  description.set_incarnation(facts_.incarnation);
  description.set_pid(::getpid());
  description.set_cores(facts_.cores);
  for (const auto& [job_id, runner] : jobs_) description.add_jobs(job_id);
  return description;
}

}  // namespace trainctl
