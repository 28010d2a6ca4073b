#include "launcher/coordinator/rank_plan.h"

#include <algorithm>
#include <cstddef>
#include <list>
#include <map>
#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "runtime/base/check.h"

namespace trainctl {
namespace {

constexpr size_t kNamesShown = 8;

absl::string_view TakeNumber(absl::string_view& text) {
  size_t n = 0;
  while (n < text.size() && absl::ascii_isdigit(static_cast<unsigned char>(text[n]))) ++n;
  absl::string_view digits = text.substr(0, n);
  text.remove_prefix(n);
  while (digits.size() > 1 && digits.front() == '0') digits.remove_prefix(1);
  return digits;
}

absl::string_view TakeSwitch(absl::string_view& path) {
  const absl::string_view name = path.substr(0, path.find('.'));
  path.remove_prefix(std::min(path.size(), name.size() + 1));
  return name;
}

// Nodes without a seat in the new world, in the order in which they are given one.
class Homeless {
 public:
  explicit Homeless(std::vector<NodePlace> nodes) {
    std::sort(nodes.begin(), nodes.end(), [](const NodePlace& a, const NodePlace& b) {
      if ((a.seat < 0) != (b.seat < 0)) return b.seat < 0;
      if (a.seat != b.seat) return a.seat < b.seat;
      return PlacedBefore(a, b);
    });
    for (NodePlace& node : nodes) {
      queue_.push_back(std::move(node));
      by_workers_[queue_.back().workers].push_back(std::prev(queue_.end()));
    }
  }

  // The first one with so many workers, if there is one, else the first.
  NodePlace Take(std::optional<int> workers) {
    const auto fitting = by_workers_.find(workers.value_or(queue_.front().workers));
    auto& same =
        fitting == by_workers_.end() ? by_workers_.at(queue_.front().workers) : fitting->second;
    const auto chosen = same.front();
    same.pop_front();
    if (same.empty()) by_workers_.erase(chosen->workers);
    NodePlace node = std::move(*chosen);
    queue_.erase(chosen);
    return node;
  }

 private:
  std::list<NodePlace> queue_;
  std::map<int, std::list<std::list<NodePlace>::iterator>> by_workers_;
};

}  // namespace

bool NumericLess(absl::string_view a, absl::string_view b) {
  const absl::string_view whole_a = a;
  const absl::string_view whole_b = b;
  while (!a.empty() && !b.empty()) {
    const absl::string_view number_a = TakeNumber(a);
    const absl::string_view number_b = TakeNumber(b);
    if (number_a.size() != number_b.size()) return number_a.size() < number_b.size();
    if (number_a != number_b) return number_a < number_b;
    if (a.empty() || b.empty()) break;
    if (a.front() != b.front()) return a.front() < b.front();
    a.remove_prefix(1);
    b.remove_prefix(1);
  }
  if (a.empty() != b.empty()) return a.empty();
  return whole_a < whole_b;  // "n1" and "n01" still need an order
}

bool TopologyLess(absl::string_view a, absl::string_view b) {
  if (a.empty() || b.empty()) return !a.empty() && b.empty();
  while (!a.empty() && !b.empty()) {
    const absl::string_view switch_a = TakeSwitch(a);
    const absl::string_view switch_b = TakeSwitch(b);
    if (switch_a != switch_b) return NumericLess(switch_a, switch_b);
  }
  return a.empty() && !b.empty();
}

bool PlacedBefore(const NodePlace& a, const NodePlace& b) {
  if (a.position != b.position) return a.position < b.position;
  if (TopologyLess(a.topology, b.topology)) return true;
  if (TopologyLess(b.topology, a.topology)) return false;
  return NumericLess(a.name, b.name);
}

std::string NameList(const std::vector<std::string>& names) {
  if (names.size() <= kNamesShown + 1) return absl::StrJoin(names, ", ");
  return absl::StrCat(absl::StrJoin(names.begin(), names.begin() + kNamesShown, ", "), " and ",
                      names.size() - kNamesShown, " more");
}

RankPlan PlanRanks(std::vector<NodePlace> nodes, const std::vector<int>& workers_of_seat) {
  CHECK(!nodes.empty());
  std::vector<std::optional<NodePlace>> seats(nodes.size());
  std::vector<NodePlace> rest;
  for (NodePlace& node : nodes) {
    const bool keeps = node.seat >= 0 && static_cast<size_t>(node.seat) < seats.size();
    if (keeps) {
      seats[static_cast<size_t>(node.seat)] = std::move(node);
    } else {
      rest.push_back(std::move(node));
    }
  }
  const size_t kept = seats.size() - rest.size();
  Homeless homeless(std::move(rest));
  RankPlan plan;
  std::vector<std::string> moved;
  for (size_t seat = 0; seat < seats.size(); ++seat) {
    if (!seats[seat]) {
      std::optional<int> wanted;
      if (seat < workers_of_seat.size()) wanted = workers_of_seat[seat];
      seats[seat] = homeless.Take(wanted);
      moved.push_back(seats[seat]->name);
    }
    plan.nodes.push_back(*std::move(seats[seat]));
  }
  if (workers_of_seat.empty()) {
    const NodePlace& first = plan.nodes.front();
    plan.reason = first.position != std::numeric_limits<int>::max() ? "nodes in the order asked for"
                  : first.topology.empty()                          ? "nodes in numeric name order"
                                           : "nodes by switch, then in numeric name order";
  } else if (moved.empty()) {
    plan.reason = "every node keeps its ranks";
  } else {
    plan.reason = absl::StrCat(kept, kept == 1 ? " node keeps its" : " nodes keep their",
                               " ranks, the free ones go to ", NameList(moved));
  }
  return plan;
}

}  // namespace trainctl
