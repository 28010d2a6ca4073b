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
#include "runtime/rpc/reply.h"

namespace trainctl {

struct DaemonOptions {
  std::string socket;
  std::string state_folder;
  bool private_daemon = false;  // ends with its one job
  std::string adopt;            // job id whose living parts are taken over, empty: none
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
  v1::NodeDescription Describe() const;

 private:
  absl::StatusOr<JobRunner::Job> MakeJob(v1::JobSpec spec) const;
  absl::StatusOr<JobRunner::Job> LoadJob(const std::string& job_folder) const;
  void AdoptLivingJobs();
  void Run(JobRunner::Job job, bool is_new, std::optional<Reply<v1::SubmitReply>> reply);
  void JobOver(const std::string& job_id);
  void EndIfIdle();

  Loop* loop_;
  const DaemonOptions options_;
  const NodeFacts facts_;
  std::map<std::string, std::unique_ptr<JobRunner>> jobs_;
  std::set<std::string> never_began_;  // of jobs_: new, and answered with an error
};

}  // namespace trainctl

#endif  // TRAINCTL_RUNTIME_NODE_DAEMON_H_
