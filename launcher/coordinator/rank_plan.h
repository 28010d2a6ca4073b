// Who has which rank, and where the workers of an epoch meet. Pure.
#ifndef TRAINCTL_LAUNCHER_COORDINATOR_RANK_PLAN_H_
#define TRAINCTL_LAUNCHER_COORDINATOR_RANK_PLAN_H_

#include <limits>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "launcher/coordinator/journal_record.h"

namespace trainctl {

// A node that can take workers, as far as its place matters.
struct NodePlace {
  std::string name;
  int position = std::numeric_limits<int>::max();  // in an order that was asked for; max: none
  std::string topology;                            // as in NodeJoined
  int workers = 1;                                 // that it will take
  int seat = -1;                                   // its place in the epoch before; -1: none
};

struct RankPlan {
  std::vector<NodePlace> nodes;  // in the order of their ranks
  std::string reason;
};

// Where `a` is placed before `b`: an order that was asked for, then switches, then numeric names.
bool PlacedBefore(const NodePlace& a, const NodePlace& b);

// Nodes that have a seat keep it where the new world has it, and with it their ranks, as long as
// the nodes before them have as many workers as before. Free seats go to old members whose seat no
// longer exists, then to new nodes in the order of PlacedBefore; of those, one with as many workers
// as the seat had is preferred. REQUIRES: nodes not empty, seats distinct.
// `workers_of_seat`: of the epoch before, by seat; empty: there was none.
RankPlan PlanRanks(std::vector<NodePlace> nodes, const std::vector<int>& workers_of_seat);

// Order of names in which runs of digits compare as numbers.
bool NumericLess(absl::string_view a, absl::string_view b);

// Order of switch paths, switch by switch; an unknown one comes last.
bool TopologyLess(absl::string_view a, absl::string_view b);

// "n1, n2, n3", of many names only the first and how many more there are.
std::string NameList(const std::vector<std::string>& names);

}  // namespace trainctl

#endif  // TRAINCTL_LAUNCHER_COORDINATOR_RANK_PLAN_H_
