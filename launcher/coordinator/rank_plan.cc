#include "launcher/coordinator/rank_plan.h"

#include <algorithm>
#include <cstddef>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "runtime/base/check.h"

namespace trainctl {
namespace {

absl::string_view TakeNumber(absl::string_view& text) {
  size_t n = 0;
  while (n < text.size() && absl::ascii_isdigit(static_cast<unsigned char>(text[n]))) ++n;
  absl::string_view digits = text.substr(0, n);
  text.remove_prefix(n);
  while (digits.size() > 1 && digits.front() == '0') digits.remove_prefix(1);
  return digits;
}

// Places of the new world, each with the node that keeps it or nullptr.
std::vector<const NodePlace*> KeepPlaces(const std::vector<NodePlace>& nodes,
                                         const std::vector<std::string>& previous) {
  std::vector<const NodePlace*> places(nodes.size(), nullptr);
  for (size_t i = 0; i < std::min(places.size(), previous.size()); ++i) {
    for (const NodePlace& node : nodes) {
      if (node.name == previous[i]) places[i] = &node;
    }
  }
  return places;
}

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

std::vector<std::string> NodesOf(const std::vector<RankPlace>& ranks) {
  std::vector<std::string> nodes;
  for (const RankPlace& place : ranks) {
    if (nodes.empty() || nodes.back() != place.node) nodes.push_back(place.node);
  }
  return nodes;
}

RankPlan PlanRanks(const std::vector<NodePlace>& nodes, const std::vector<RankPlace>& previous,
                   int workers_per_node) {
  CHECK(!nodes.empty() && workers_per_node >= 1);
  const std::vector<std::string> before = NodesOf(previous);
  std::vector<const NodePlace*> places = KeepPlaces(nodes, before);
  const auto kept = std::count_if(places.begin(), places.end(), [](auto* p) { return p; });

  std::vector<const NodePlace*> homeless;
  for (const NodePlace& node : nodes) {
    if (std::find(places.begin(), places.end(), &node) == places.end()) homeless.push_back(&node);
  }
  // Old members whose rank no longer exists come before new ones.
  const auto position = [&](const NodePlace* node) {
    return std::find(before.begin(), before.end(), node->name) - before.begin();
  };
  std::sort(homeless.begin(), homeless.end(), [&](const NodePlace* a, const NodePlace* b) {
    if (position(a) != position(b)) return position(a) < position(b);
    return NumericLess(a->name, b->name);
  });
  auto next = homeless.begin();
  for (const NodePlace*& place : places) {
    if (!place) place = *next++;
  }

  RankPlan plan;
  for (const NodePlace* node : places) {
    for (int local_rank = 0; local_rank < workers_per_node; ++local_rank) {
      const int rank = static_cast<int>(plan.ranks.size());
      plan.ranks.push_back({rank, local_rank, node->name, node->address});
    }
  }
  plan.master_address = places.front()->address;
  plan.master_port = places.front()->reserved_port;
  std::vector<std::string> moved;
  for (const NodePlace* node : homeless) moved.push_back(node->name);
  if (previous.empty()) {
    plan.reason = "nodes in numeric name order";
  } else if (moved.empty()) {
    plan.reason = "every node keeps its ranks";
  } else {
    plan.reason = absl::StrCat(kept, " nodes keep their ranks, the free ones go to ",
                               absl::StrJoin(moved, ", "));
  }
  return plan;
}

}  // namespace trainctl
