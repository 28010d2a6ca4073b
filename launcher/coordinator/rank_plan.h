// Who has which rank, and where the workers of an epoch meet. Pure.
#ifndef TRAINCTL_LAUNCHER_COORDINATOR_RANK_PLAN_H_
#define TRAINCTL_LAUNCHER_COORDINATOR_RANK_PLAN_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "launcher/coordinator/journal_record.h"

namespace trainctl {

struct NodePlace {
  std::string name;
  std::string address;
  int reserved_port = 0;
};

struct RankPlan {
  std::vector<RankPlace> ranks;  // by rank; a node's workers have consecutive ranks
  std::string master_address;    // of rank 0's node
  int master_port = 0;
  std::string reason;
};

// Members of `previous` keep their ranks where the new world has them; new nodes take what is free
// in numeric name order ("n2" before "n10"). REQUIRES: nodes not empty, workers_per_node >= 1.
RankPlan PlanRanks(const std::vector<NodePlace>& nodes, const std::vector<RankPlace>& previous,
                   int workers_per_node);

// The distinct nodes of `ranks`, by rank.
std::vector<std::string> NodesOf(const std::vector<RankPlace>& ranks);

// Order of names in which runs of digits compare as numbers.
bool NumericLess(absl::string_view a, absl::string_view b);

}  // namespace trainctl

#endif  // TRAINCTL_LAUNCHER_COORDINATOR_RANK_PLAN_H_
