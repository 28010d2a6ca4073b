// traind: the jobs of this node and what front ends ask about them.
#ifndef TRAINCTL_RUNTIME_NODE_DAEMON_H_
#define TRAINCTL_RUNTIME_NODE_DAEMON_H_

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/node.pb.h"
#include "runtime/base/loop.h"
#include "runtime/node/job_runner.h"
#include "runtime/node/part_owner.h"
#include "runtime/node/wire.h"
#include "runtime/rpc/reply.h"
#include "runtime/security/tls_files.h"

namespace trainctl {

struct DaemonOptions {
  std::string socket;
  std::string state_folder;
  bool private_daemon = false;  // ends with its one job
  std::string adopt;            // job id whose living parts are taken over, empty: none
  bool scopes = false;          // systemd is asked for a scope for each shim
  std::string node;             // name of this node, empty: the machine's
  TlsFiles tls;                 // by which we take part in jobs that invite us
};

// Lives on the loop's thread.
class Daemon {
 public:
  Daemon(Loop* loop, DaemonOptions options);

  // Takes over what an earlier daemon with this socket left running. FAILED_PRECONDITION or
  // NOT_FOUND only for the job that `adopt` names.
  absl::Status Begin();

  void Submit(const v1::SubmitRequest& request, Reply<v1::SubmitReply> reply);
  void Resume(const v1::ResumeRequest& request, Reply<v1::SubmitReply> reply);
  void TakePart(const v1::TakePartRequest& request, PartFeed* feed);
  // `caller`: literal address of the machine that asks.
  void Invite(const v1::InviteRequest& request, const std::string& caller,
              Reply<v1::InviteReply> reply);
  void Leave(const v1::LeaveJobRequest& request, Reply<v1::LeaveJobReply> reply);
  v1::NodeDescription Describe() const;
  bool idle() const { return jobs_.empty(); }

 private:
  // What runs, and as whom we take part in it.
  struct Task {
    JobRunner::Job job;
    NodeFacts facts;
  };
  absl::StatusOr<Task> MakeJob(v1::JobSpec spec, v1::NodePart part) const;
  absl::StatusOr<Task> LoadJob(const std::string& job_folder) const;
  Task TaskOf(const v1::JobSpec& spec, const v1::NodePart& part) const;
  absl::Status CheckRoom(const std::string& job_id) const;
  void AdoptLivingJobs();
  void AdoptLivingParts();
  void Run(Task task, bool is_new, std::optional<Reply<v1::SubmitReply>> reply);
  void JobOver(const std::string& job_id);

  // Parts in jobs whose coordinator is elsewhere (daemon_parts.cc).
  absl::Status BeginPart(v1::NodePart part);
  void BeginInvited(v1::NodePart part, const std::string& caller, Reply<v1::InviteReply> reply);
  void Standing(const std::string& job_id, const v1::PartUpdate& update);
  void EndIfIdle();

  Loop* loop_;
  const DaemonOptions options_;
  const NodeFacts facts_;
  std::map<std::string, std::unique_ptr<JobRunner>> jobs_;
  std::set<std::string> never_began_;  // of jobs_: new, and answered with an error
  std::set<std::string> probing_;      // jobs for which this node looks at its GPUs
  std::map<std::string, std::unique_ptr<PartOwner>> owners_;  // of jobs_: coordinated elsewhere
};

}  // namespace trainctl

#endif  // TRAINCTL_RUNTIME_NODE_DAEMON_H_
