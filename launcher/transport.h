// How the nodes of an epoch talk, from what each of them has told of its devices: what must be the
// same on all of them, and what people should know. Not thread-safe.
#ifndef TRAINCTL_LAUNCHER_TRANSPORT_H_
#define TRAINCTL_LAUNCHER_TRANSPORT_H_

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "launcher/coordinator/journal_record.h"
#include "launcher/coordinator/spec.h"
#include "runtime/topology/transport_plan.h"

namespace trainctl {

class Transports {
 public:
  // `spec` must outlive it.
  explicit Transports(const JobSpec& spec) : spec_(spec) {}

  // `devices`: as in v1::NodeState. What cannot be read is as good as nothing.
  void Remember(const std::string& node, const std::string& devices);

  // nullptr: a job on one node, or some node has told nothing of GPUs; each node's own plan is all
  // that there is.
  const TransportPlan* PlanFor(Epoch epoch, const std::vector<NodeShare>& shares);
  // Of the newest plan, "NAME=value".
  std::vector<std::string> Settings() const;
  // Of the newest plan, each once in a job.
  std::vector<std::string> TakeNews();

 private:
  const JobSpec& spec_;
  std::map<std::string, Topology> nodes_;
  Epoch epoch_{-1};
  std::optional<TransportPlan> plan_;  // of epoch_
  std::set<std::string> told_;
};

}  // namespace trainctl

#endif  // TRAINCTL_LAUNCHER_TRANSPORT_H_
