// Parts that this node has in jobs whose coordinator is elsewhere.
#include <filesystem>
#include <system_error>
#include <thread>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/fd.h"
#include "runtime/base/file.h"
#include "runtime/base/log.h"
#include "runtime/base/places.h"
#include "runtime/base/status.h"
#include "runtime/node/daemon.h"
#include "runtime/node/job_folders.h"
#include "runtime/node/part.h"

namespace trainctl {

void Daemon::AdoptLivingParts() {
  const std::string parts = FolderOf(FolderOf(PartFolder(options_.state_folder, "x", "x")));
  for (const std::string& job_id : FolderEntries(parts)) {
    for (const std::string& node : FolderEntries(JoinPath(parts, job_id))) {
      const std::string folder = PartFolder(options_.state_folder, job_id, node);
      if (!IsOwner(folder, options_.socket) || !ConnectUnix(PartShimSocket(job_id, node)).ok()) {
        continue;
      }
      absl::StatusOr<v1::NodePart> part = LoadPart(folder);
      const absl::Status begun = part.ok() ? BeginPart(*std::move(part)) : part.status();
      if (begun.ok()) continue;
      LogWarning("the part in job ", job_id, " lives, but cannot be taken over: ", begun.message());
    }
  }
}

absl::Status Daemon::BeginPart(v1::NodePart part) {
  if (part.node().empty()) part.set_node(facts_.node);
  RETURN_IF_ERROR(CheckPart(part));
  RETURN_IF_ERROR(CheckRoom(part.job_id()));
  part.set_folder(PartFolder(options_.state_folder, part.job_id(), part.node()));
  RETURN_IF_ERROR(SavePart(part));
  SetOwner(part.folder(), options_.socket);
  ASSIGN_OR_RETURN(JobRunner::Job job, JobOf(part));
  const std::string job_id = job.job_id;
  owners_[job_id] = std::make_unique<PartOwner>(loop_, [this, job_id] {
    if (const auto found = jobs_.find(job_id); found != jobs_.end()) {
      found->second->Leave("the front end that this node belonged to is gone");
    }
  });
  Run({std::move(job), FactsFor(facts_, part, "")}, false, std::nullopt);
  return absl::OkStatus();
}

void Daemon::TakePart(const v1::TakePartRequest& request, PartFeed* feed) {
  const std::string& job_id = request.part().job_id();
  if (owners_.count(job_id) == 0) {
    const absl::Status begun = BeginPart(request.part());
    if (!begun.ok()) return feed->Finish(begun);
  }
  owners_[job_id]->Attach(feed, Duration(request.orphan_timeout_ns()));
}

void Daemon::Invite(const v1::InviteRequest& request, const std::string& caller,
                    Reply<v1::InviteReply> reply) {
  v1::NodePart part = request.part();
  if (owners_.count(part.job_id()) != 0) return reply.Send({});
  if (absl::StartsWith(part.coordinator(), ":")) {
    const bool v6 = absl::StrContains(caller, ":");
    part.set_coordinator(v6 ? absl::StrCat("[", caller, "]", part.coordinator())
                            : absl::StrCat(caller, part.coordinator()));
  }
  *part.mutable_tls() = v1::TlsFiles();
  part.mutable_tls()->set_key(options_.tls.key);
  part.mutable_tls()->set_certificate(options_.tls.certificate);
  part.mutable_tls()->set_private_key(options_.tls.private_key);
  part.mutable_tls()->set_authority(options_.tls.authority);
  if (!part.has_gpu_wish()) return BeginInvited(std::move(part), caller, std::move(reply));
  if (!probing_.insert(part.job_id()).second) {
    return reply.Fail(absl::UnavailableError("it still looks at its GPUs"));
  }
  // The driver may block for seconds.
  std::thread([this, part = std::move(part), caller, reply = std::move(reply)]() mutable {
    absl::Status planned = PlanGpus(&part);
    loop_->Post([this, part = std::move(part), caller, reply = std::move(reply),
                 planned = std::move(planned)]() mutable {
      probing_.erase(part.job_id());
      if (!planned.ok()) return reply.Fail(planned);
      BeginInvited(std::move(part), caller, std::move(reply));
    });
  }).detach();
}

void Daemon::BeginInvited(v1::NodePart part, const std::string& caller,
                          Reply<v1::InviteReply> reply) {
  const std::string job_id = part.job_id();
  const absl::Status begun = BeginPart(std::move(part));
  if (!begun.ok()) return reply.Fail(begun);
  LogInfo("takes part in job ", job_id, " of ", caller);
  reply.Send({});
}

void Daemon::Leave(const v1::LeaveJobRequest& request, Reply<v1::LeaveJobReply> reply) {
  if (owners_.count(request.job_id()) == 0) {
    return reply.Fail(absl::NotFoundError(
        absl::StrCat("this node takes no part in job ", request.job_id(), " of another node")));
  }
  jobs_[request.job_id()]->Leave("asked to leave");
  reply.Send({});
}

void Daemon::Standing(const std::string& job_id, const v1::PartUpdate& update) {
  const auto owner = owners_.find(job_id);
  if (owner == owners_.end()) return;
  owner->second->Tell(update);
  if (update.standing() == v1::PartUpdate::LEFT) {
    LogWarning("left job ", job_id, ": ", update.reason());
  }
  if (update.standing() != v1::PartUpdate::OVER) return;
  // Nothing of it is of use any more; after LEFT the logs may be.
  std::error_code ignored;
  std::filesystem::remove_all(jobs_[job_id]->job().folder, ignored);
  std::filesystem::remove(FolderOf(jobs_[job_id]->job().folder), ignored);
}

}  // namespace trainctl
