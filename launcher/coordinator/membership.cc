#include "launcher/coordinator/membership.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "runtime/base/check.h"

namespace trainctl {
namespace {

constexpr Duration kLeaseMargin = seconds(1);

bool OtherMachine(const Node& node, const NodeJoined& joined) {
  return !node.machine.empty() && !joined.machine.empty() && node.machine != joined.machine;
}

absl::string_view FirstAddress(const NodeJoined& joined) {
  return joined.addresses.empty() ? absl::string_view("an unknown address")
                                  : absl::string_view(joined.addresses.front().address);
}

}  // namespace

Membership::Membership(const JobSpec& spec)
    : lease_(spec.lease),
      workers_per_node_(spec.workers_per_node),
      places_(static_cast<size_t>(spec.max_nodes) + static_cast<size_t>(spec.spares)) {
  for (const std::string& name : spec.nodes) {
    if (spec.ranks_follow_nodes) positions_.emplace(name, static_cast<int>(positions_.size()));
    FindOrMake(name);
  }
}

// ---- Who is here

Membership::JoinDecision Membership::Join(const NodeJoined& joined) {
  Node* known = FindMutable(joined.node);
  if (known && !OtherMachine(*known, joined) && joined.incarnation < known->incarnation) {
    return {false, true, "a newer daemon of this node has joined"};
  }
  if (std::string reason = WhyNot(joined, known); !reason.empty()) {
    return {false, false, std::move(reason)};
  }
  Node& node = FindOrMake(joined.node);
  node.incarnation = joined.incarnation;
  node.machine = joined.machine;
  node.addresses = joined.addresses;
  node.topology = joined.topology;
  if (const auto held = by_node_rank_.find(node.position);
      held != by_node_rank_.end() && held->second == &node) {
    by_node_rank_.erase(held);
  }
  node.position = PositionOf(joined);
  if (joined.node_rank >= 0) by_node_rank_[joined.node_rank] = &node;
  node.cores = joined.cores;
  node.slots = joined.slots;
  node.unfit = joined.unfit;
  node.reserved_port = joined.reserved_port;
  node.connected = true;
  node.lost = false;
  node.joined_at = now_;
  node.left_reason.clear();
  node.shim_epoch = joined.epoch;
  node.gone = joined.gone;
  node.verified.clear();
  node.address.clear();
  Changed(node);
  return {true, false, ""};
}

std::string Membership::WhyNot(const NodeJoined& joined, const Node* known) const {
  if (known && OtherMachine(*known, joined) && (known->connected || known->holds_workers())) {
    std::string reason = absl::StrCat("node ", joined.node, " is at ", known->first_address(),
                                      " already; another machine, at ", FirstAddress(joined),
                                      ", came under the same name");
    if (known->connected) return absl::StrCat(reason, ": give one of them another name");
    return absl::StrFormat("%s, and the lease of the first one ends in %.1f s", reason,
                           ToSeconds(LeaseEnd(*known) - now_));
  }
  if (const auto same = by_node_rank_.find(joined.node_rank);
      joined.node_rank >= 0 && same != by_node_rank_.end()) {
    const Node& other = *same->second;
    if (other.name != joined.node && (other.connected || other.holds_workers())) {
      return absl::StrCat("node rank ", joined.node_rank, " belongs to ", other.name, " at ",
                          other.first_address(), "; ", joined.node, " at ", FirstAddress(joined),
                          " asks for it, too: give one of them another --node-rank");
    }
  }
  if (joined.addresses.empty()) {
    return absl::StrCat("node ", joined.node, " did not tell an address at which it is reached");
  }
  const bool holds_workers = known && known->holds_workers();
  if (!joined.unfit.empty() && !holds_workers) {
    return absl::StrCat("node ", joined.node, " cannot run workers: ", joined.unfit);
  }
  const int wanted = std::max(workers_per_node_, 1);
  if (joined.slots < wanted && !holds_workers) {
    return absl::StrCat("node ", joined.node, " can take ", joined.slots, " workers, and the job ",
                        "wants ", wanted, " on each node");
  }
  // One that holds workers has its place; one with old workers takes none before they are gone.
  if (joined.gone && !(known && (known->present_ || known->drained || !known->avoided.empty())) &&
      present_ >= places_) {
    return absl::StrCat("the job has all the nodes that it takes, ", places_,
                        " (--nnodes and --spares)");
  }
  return "";
}

std::string Membership::Surplus(const Node& node) const {
  if (!node.present_ || node.holds_workers() || present_ <= places_) return "";
  return absl::StrCat("the job has all the nodes that it takes, ", places_,
                      " (--nnodes and --spares)");
}

bool Membership::Leave(const NodeLeft& left) {
  Node* node = FindMutable(left.node);
  if (!node || left.incarnation != node->incarnation || !node->connected) return false;
  node->connected = false;
  node->left_reason = left.reason;
  Changed(*node);
  return true;
}

int Membership::PositionOf(const NodeJoined& joined) const {
  if (joined.node_rank >= 0) return joined.node_rank;
  const auto found = positions_.find(joined.node);
  return found == positions_.end() ? -1 : found->second;
}

Membership::LeaseDecision Membership::DecideLease(const LeaseRequested& request, Epoch current,
                                                  bool patience_over) {
  Node* node = FindMutable(request.node);
  if (!node) return {false, "the node has not joined"};
  if (request.incarnation != node->incarnation) return {false, "an older life of its daemon"};
  if (node->part == Part::kLost) return {false, "its lease ended before"};
  if (!node->gone && node->shim_epoch != current) return {false, "its epoch is over"};
  if (!node->gone && patience_over) return {false, "its workers did not end in time"};
  Answer(*node);
  return {true, ""};
}

// ---- Who takes part

int Membership::WorkersOn(const Node& node) const {
  if (workers_per_node_ == kEverySlot) return std::max(node.slots, 0);
  return node.slots >= workers_per_node_ ? workers_per_node_ : 0;
}

NodePlace Membership::PlaceOf(const Node& node) const {
  NodePlace place;
  place.name = node.name;
  if (node.position >= 0) place.position = node.position;
  place.topology = node.topology;
  place.workers = WorkersOn(node);
  place.seat = node.seat;
  return place;
}

std::vector<const Node*> Membership::Usable() const {
  std::vector<std::pair<NodePlace, const Node*>> found;
  for (const auto& [name, node] : nodes_) {
    if (node.usable_) found.emplace_back(PlaceOf(node), &node);
  }
  std::stable_sort(found.begin(), found.end(), [](const auto& a, const auto& b) {
    if ((a.first.seat < 0) != (b.first.seat < 0)) return b.first.seat < 0;
    if (a.first.seat != b.first.seat) return a.first.seat < b.first.seat;
    return PlacedBefore(a.first, b.first);
  });
  std::vector<const Node*> nodes;
  for (const auto& [place, node] : found) nodes.push_back(node);
  return nodes;
}

void Membership::BeginEpoch(const EpochFormed& epoch) {
  for (auto& [name, node] : nodes_) {
    node.part = Part::kNone;
    node.seat = -1;
  }
  for (size_t seat = 0; seat < epoch.nodes.size(); ++seat) {
    Node& node = *FindMutable(epoch.nodes[seat].node);
    node.seat = static_cast<int>(seat);
    node.part = Part::kStarting;
    ToldToStart(node.name, epoch.epoch);
  }
  for (auto& [name, node] : nodes_) Changed(node);
}

void Membership::ToldToStart(const std::string& name, Epoch epoch) {
  Node* node = FindMutable(name);
  CHECK(node && node->gone);
  node->shim_epoch = epoch;
  node->gone = false;
  Changed(*node);
  Answer(*node);
}

void Membership::ExpectEpoch(const EpochFormed& epoch, const std::set<std::string>& lost) {
  for (size_t seat = 0; seat < epoch.nodes.size(); ++seat) {
    const NodeShare& share = epoch.nodes[seat];
    Node& node = FindOrMake(share.node);
    node.machine = share.machine;
    node.addresses = {{"", share.address}};
    node.lost = lost.contains(share.node);
    node.left_reason = node.lost ? "its lease ended" : "the coordinator restarted";
    node.part = node.lost ? Part::kLost : Part::kStarting;
    node.seat = static_cast<int>(seat);
    node.gone = false;
    Changed(node);
    Answer(node);
  }
}

void Membership::MarkStarted(const std::string& name, int reserved_port) {
  Node* node = FindMutable(name);
  CHECK(node);
  if (node->part == Part::kStarting) node->part = Part::kStarted;
  if (reserved_port != 0) node->reserved_port = reserved_port;
  Changed(*node);
}

void Membership::MarkGone(const std::string& name) {
  Node* node = FindMutable(name);
  CHECK(node);
  node->gone = true;
  if (node->holds_workers()) node->part = Part::kGone;
  Changed(*node);
}

void Membership::MarkUnfit(const std::string& name, std::string why) {
  Node* node = FindMutable(name);
  if (!node) return;
  node->unfit = std::move(why);
  Changed(*node);
}

void Membership::MarkDrained(const std::string& name, bool drained) {
  Node& node = FindOrMake(name);
  node.drained = drained;
  Changed(node);
}

void Membership::Avoid(const std::string& name, std::string why, size_t suffice) {
  Node* node = FindMutable(name);
  if (!node) return;
  node->avoided = std::move(why);
  node->suffice = suffice;
  Changed(*node);
}

void Membership::ForgetAvoided() {
  for (auto& [name, node] : nodes_) {
    if (node.avoided.empty()) continue;
    node.avoided.clear();
    Changed(node);
  }
}

void Membership::Verify(const std::string& name, std::string meeting_place,
                        std::string own_address) {
  Node* node = FindMutable(name);
  CHECK(node);
  node->verified = std::move(meeting_place);
  // What it calls from is not where it is reached, unless it says so.
  const bool told =
      std::any_of(node->addresses.begin(), node->addresses.end(),
                  [&](const NodeAddress& known) { return known.address == own_address; });
  node->address = told ? std::move(own_address) : "";
}

void Membership::ForgetVerified() {
  for (auto& [name, node] : nodes_) node.verified.clear();
}

// ---- Leases

Instant Membership::LeaseEnd(const Node& node) const {
  return node.answered + lease_ + kLeaseMargin;
}

void Membership::Answer(Node& node) {
  node.answered = now_;
  if (node.leased_) leases_.splice(leases_.end(), leases_, node.lease_);
}

const Node* Membership::EndOneLease() {
  if (leases_.empty() || LeaseEnd(*leases_.front()) > now_) return nullptr;
  Node& node = *leases_.front();
  node.part = Part::kLost;
  node.lost = true;
  Changed(node);
  return &node;
}

Instant Membership::next_lease_end() const {
  return leases_.empty() ? kNever : LeaseEnd(*leases_.front());
}

// ---- Looking

const Node* Membership::Find(absl::string_view name) const {
  const auto it = by_name_.find(name);
  return it == by_name_.end() ? nullptr : it->second;
}

Node* Membership::FindMutable(absl::string_view name) {
  const auto it = by_name_.find(name);
  return it == by_name_.end() ? nullptr : it->second;
}

Node& Membership::FindOrMake(const std::string& name) {
  if (Node* const known = FindMutable(name)) return *known;
  Node& node = nodes_[name];
  node.name = name;
  node.since = now_;
  by_name_[node.name] = &node;
  return node;
}

std::vector<const Node*> Membership::All() const {
  std::vector<const Node*> nodes;
  for (const auto& [name, node] : nodes_) nodes.push_back(&node);
  return nodes;
}

std::vector<const Node*> Membership::HoldingWorkers() const {
  std::vector<const Node*> nodes(leases_.begin(), leases_.end());
  std::sort(nodes.begin(), nodes.end(),
            [](const Node* a, const Node* b) { return NumericLess(a->name, b->name); });
  return nodes;
}

NodeStanding Membership::StandingOf(const Node& node) const {
  if (node.holds_workers()) return node.connected ? NodeStanding::kMember : NodeStanding::kLate;
  if (!node.connected) {
    if (node.lost) return NodeStanding::kLost;
    return node.incarnation == Incarnation(0) ? NodeStanding::kExpected : NodeStanding::kAway;
  }
  if (!node.gone) return NodeStanding::kFenced;
  if (node.drained) return NodeStanding::kDrained;
  const bool fit = node.unfit.empty() && node.avoided.empty();
  return fit ? NodeStanding::kReady : NodeStanding::kUnfit;
}

void Membership::Changed(Node& node) {
  const auto set = [](bool& flag, bool value, size_t& count) {
    if (flag == value) return;
    flag = value;
    value ? ++count : --count;
  };
  const bool here_and_empty = node.connected && node.gone && !node.drained && node.unfit.empty();
  set(node.usable_, here_and_empty && WorkersOn(node) > 0, usable_);
  set(node.starting_, node.part == Part::kStarting, starting_);
  set(node.drained_member_, node.drained && node.holds_workers(), drained_members_);
  set(node.present_,
      !node.drained && node.avoided.empty() && (node.holds_workers() || here_and_empty), present_);
  if (node.leased_ != node.holds_workers()) {
    node.leased_ = node.holds_workers();
    if (node.leased_) {
      node.lease_ = leases_.insert(leases_.end(), &node);
    } else {
      leases_.erase(node.lease_);
    }
  }
  const NodeStanding standing = StandingOf(node);
  if (standing != node.standing_) node.since = now_;
  node.standing_ = standing;
}

}  // namespace trainctl
