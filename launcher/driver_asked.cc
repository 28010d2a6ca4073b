// What front ends and nodes that are to come ask of a job.
#include <unistd.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "launcher/coordinator/rank_plan.h"
#include "launcher/driver.h"
#include "launcher/wire.h"
#include "runtime/base/clock.h"

namespace trainctl {

void Driver::AddWatcher(WatchFeed* feed, const v1::WatchRequest& request) {
  watchers_.Add(feed, request);
  WatcherCame();
}

v1::JobState Driver::State() const {
  JobDescription description;
  description.job_id = spec_.job_id;
  description.name = spec_.name;
  description.view = coordinator_.View(Now());
  description.job_folder = spec_.job_folder;
  description.log_folder = spec_.log_folder;
  description.checkpoint_folder = spec_.checkpoint_folder;
  description.coordinator_pid = ::getpid();
  description.detached = spec_.orphan_timeout < Duration(0);
  for (const auto& [rank, worker] : workers_) description.workers.push_back(worker);
  return ToProto(description);
}

absl::StatusOr<v1::EnlistReply> Driver::Enlist(const v1::EnlistRequest& request) const {
  const auto refuse = [this](absl::string_view why) {
    return absl::FailedPreconditionError(
        absl::StrCat("job ", spec_.job_id, " coordinates at ", spec_.listen, ", and ", why));
  };
  if (outcome_.has_value()) return refuse("it is over");
  if (request.claim() != spec_.claim) {
    return refuse(absl::StrCat("it is ", spec_.claim, ", not ", request.claim().substr(0, 200),
                               ": give each job an endpoint of its own"));
  }
  if (request.min_nodes() != spec_.min_nodes || request.max_nodes() != spec_.max_nodes) {
    return refuse(absl::StrCat("it has --nnodes ", spec_.min_nodes, ":", spec_.max_nodes,
                               ", this command says ", request.min_nodes(), ":",
                               request.max_nodes(), "; give the same on every node"));
  }
  v1::EnlistReply reply;
  reply.set_job_id(spec_.job_id);
  reply.set_head(spec_.head);
  reply.set_lease_ns(spec_.lease.count());
  reply.set_orphan_timeout_ns(spec_.orphan_timeout.count());
  return reply;
}

std::vector<std::string> Driver::NodesAway() const {
  std::vector<std::string> away;
  for (const std::string& node : spec_.nodes) {
    if (!nodes_.Has(node)) away.push_back(node);
  }
  return away;
}

void Driver::Stop(const StopAsked& order) { Tell(order); }

absl::Status Driver::Signal(int signo, const std::vector<int>& ranks) {
  const JobView view = coordinator_.View(Now());
  if (view.phase != JobPhase::kRunning && view.phase != JobPhase::kStarting) {
    return absl::FailedPreconditionError(
        absl::StrCat("no worker runs to send a signal to: ", view.explain));
  }
  for (const int rank : ranks) {
    if (rank >= 0 && rank < view.world_size) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("there is no rank ", rank, "; the job has ranks 0 to ", view.world_size - 1));
  }
  v1::NodeOrder order;
  order.mutable_signal()->set_epoch(view.epoch.value);
  order.mutable_signal()->set_signo(signo);
  order.mutable_signal()->mutable_ranks()->Assign(ranks.begin(), ranks.end());
  nodes_.SendToAll(order);
  return absl::OkStatus();
}

absl::Status Driver::KillNode(const std::string& node) {
  if (node == spec_.head || spec_.listen.empty()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "node ", node, " runs the job's coordinator, and the job would end with it; name another"));
  }
  if (!nodes_.Has(node)) {
    return absl::NotFoundError(
        absl::StrCat("job ", spec_.job_id, " has no node ", node, " at present"));
  }
  v1::NodeOrder order;
  order.mutable_vanish();
  nodes_.Send(node, std::move(order));
  return absl::OkStatus();
}

absl::Status Driver::Drain(const DrainAsked& order) {
  std::vector<std::string> names;
  for (const NodeView& node : coordinator_.View(Now()).nodes) names.push_back(node.node);
  if (std::find(names.begin(), names.end(), order.node) == names.end()) {
    return absl::NotFoundError(absl::StrCat("job ", spec_.job_id, " has no node ", order.node,
                                            "; its nodes: ", NameList(names)));
  }
  Tell(order);
  return absl::OkStatus();
}

}  // namespace trainctl
