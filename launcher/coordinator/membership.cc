#include "launcher/coordinator/membership.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "runtime/base/check.h"

namespace trainctl {
namespace {

constexpr Duration kLeaseMargin = seconds(1);

}  // namespace

bool Membership::Join(const NodeJoined& joined) {
  Node& node = nodes_[joined.node];
  if (joined.incarnation < node.incarnation) return false;
  node.name = joined.node;
  node.incarnation = joined.incarnation;
  node.address = joined.addresses.empty() ? "" : joined.addresses.front().address;
  node.cores = joined.cores;
  node.slots = joined.slots;
  node.reserved_port = joined.reserved_port;
  node.connected = true;
  node.left_reason.clear();
  node.shim_epoch = joined.epoch;
  node.gone = joined.gone;
  return true;
}

bool Membership::Leave(const NodeLeft& left) {
  Node* node = FindMutable(left.node);
  if (!node || left.incarnation != node->incarnation) return false;
  node->connected = false;
  node->left_reason = left.reason;
  return true;
}

Membership::LeaseDecision Membership::DecideLease(const LeaseRequested& request, Epoch current,
                                                  bool patience_over, Instant now) {
  Node* node = FindMutable(request.node);
  if (!node) return {false, "the node has not joined"};
  if (request.incarnation != node->incarnation) return {false, "an older life of its daemon"};
  if (node->part == Part::kLost) return {false, "its lease ended before"};
  if (!node->gone && node->shim_epoch != current) return {false, "its epoch is over"};
  if (!node->gone && patience_over) return {false, "its workers did not end in time"};
  node->answered = now;
  return {true, ""};
}

std::vector<NodePlace> Membership::Ready(int workers,
                                         const std::vector<RankPlace>& previous) const {
  const std::vector<std::string> before = NodesOf(previous);
  std::vector<NodePlace> members;
  std::vector<NodePlace> others;
  for (const auto& [name, node] : nodes_) {
    if (!node.connected || !node.gone || node.slots < workers) continue;
    const bool member = std::find(before.begin(), before.end(), name) != before.end();
    (member ? members : others).push_back({name, node.address, node.reserved_port});
  }
  members.insert(members.end(), others.begin(), others.end());
  return members;
}

void Membership::BeginEpoch(Epoch epoch, const std::vector<RankPlace>& ranks, Instant now) {
  for (auto& [name, node] : nodes_) node.part = Part::kNone;
  for (const std::string& name : NodesOf(ranks)) {
    FindMutable(name)->part = Part::kStarting;
    ToldToStart(name, epoch, now);
  }
}

void Membership::ToldToStart(const std::string& name, Epoch epoch, Instant now) {
  Node* node = FindMutable(name);
  CHECK(node && node->gone);
  node->shim_epoch = epoch;
  node->gone = false;
  node->answered = now;
}

void Membership::ExpectEpoch(const std::vector<RankPlace>& ranks, Instant now) {
  for (const RankPlace& place : ranks) {
    Node& node = nodes_[place.node];
    node.name = place.node;
    node.address = place.address;
    node.left_reason = "the coordinator restarted";
    node.part = Part::kStarting;
    node.gone = false;
    node.answered = now;
  }
}

void Membership::MarkStarted(const std::string& name, int reserved_port) {
  Node* node = FindMutable(name);
  CHECK(node);
  if (node->part == Part::kStarting) node->part = Part::kStarted;
  if (reserved_port != 0) node->reserved_port = reserved_port;
}

void Membership::MarkGone(const std::string& name) {
  Node* node = FindMutable(name);
  CHECK(node);
  node->gone = true;
  if (node->holds_workers()) node->part = Part::kGone;
}

std::vector<std::string> Membership::EndLeases(Instant now) {
  std::vector<std::string> lost;
  for (auto& [name, node] : nodes_) {
    if (!node.holds_workers() || LeaseEnd(node) > now) continue;
    node.part = Part::kLost;
    lost.push_back(name);
  }
  return lost;
}

Instant Membership::next_lease_end() const {
  Instant end = kNever;
  for (const auto& [name, node] : nodes_) {
    if (node.holds_workers()) end = std::min(end, LeaseEnd(node));
  }
  return end;
}

const Node* Membership::Find(absl::string_view name) const {
  const auto it = nodes_.find(name);
  return it == nodes_.end() ? nullptr : &it->second;
}

Node* Membership::FindMutable(absl::string_view name) {
  const auto it = nodes_.find(name);
  return it == nodes_.end() ? nullptr : &it->second;
}

std::vector<const Node*> Membership::All() const {
  std::vector<const Node*> nodes;
  for (const auto& [name, node] : nodes_) nodes.push_back(&node);
  return nodes;
}

std::vector<const Node*> Membership::HoldingWorkers() const {
  std::vector<const Node*> nodes;
  for (const auto& [name, node] : nodes_) {
    if (node.holds_workers()) nodes.push_back(&node);
  }
  return nodes;
}

bool Membership::AllStarted() const {
  return std::none_of(nodes_.begin(), nodes_.end(),
                      [](const auto& entry) { return entry.second.part == Part::kStarting; });
}

Instant Membership::LeaseEnd(const Node& node) const {
  return node.answered + lease_ + kLeaseMargin;
}

}  // namespace trainctl
