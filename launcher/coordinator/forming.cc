#include <algorithm>
#include <cstddef>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "launcher/coordinator/coordinator_state.h"
#include "launcher/coordinator/exit_status.h"

namespace trainctl {
namespace {

// With enough nodes for the smallest world, the first epoch waits this long for more.
constexpr Duration kLastCall = seconds(10);
constexpr Duration kWordEvery = seconds(5);
constexpr Duration kMeetAgain = seconds(5);

// What a node has verified: a later life of rank 0's node is somewhere else.
std::string MeetingPlace(const Node& node, absl::string_view address) {
  return absl::StrCat(node.name, "|", node.incarnation.value, "|", address);
}

}  // namespace

void CoordinatorState::BecomeForming(std::string reason, Duration delay) {
  Forming forming;
  forming.reason = std::move(reason);
  forming.since = now_;
  forming.not_before = now_ + delay;
  forming.give_up = forming.not_before + spec_.join_timeout;
  forming.next_word = now_ + kWordEvery;
  forming.folder_read = spec_.checkpoint_folder.empty();
  const bool ask = !forming.folder_read;
  phase_ = std::move(forming);
  AvoidFailingNodes();
  if (ask) Do(FindCheckpoints{});
  for (const Node* node : members_.All()) {
    if (spec_.max_nodes > 1 || !node->connected || node->unfit.empty()) continue;
    return Finish({Outcome::Kind::kFailed, kExitNotFit,
                   absl::StrCat("node ", node->name, " cannot run workers: ", node->unfit),
                   std::nullopt});
  }
  TryForm();
}

void CoordinatorState::AvoidFailingNodes() {
  members_.ForgetAvoided();
  const auto fewest = static_cast<size_t>(spec_.min_nodes);
  const auto most = static_cast<size_t>(spec_.max_nodes);
  for (const RestartPolicy::Blame& blame : policy_.Blamed(spec_, now_)) {
    // A script that fails wherever it runs must not cost the job its nodes, one after the other.
    const bool replace_only = blame.by_script && epoch_;
    const size_t suffice =
        replace_only ? std::clamp(epoch_->formed.nodes.size(), fewest, most) : fewest;
    members_.Avoid(blame.node, blame.reason, suffice);
  }
}

void CoordinatorState::TryForm() {
  auto* forming = std::get_if<Forming>(&phase_);
  if (!forming || forming->meeting) return;
  const bool enough = members_.usable() >= static_cast<size_t>(spec_.min_nodes);
  if (now_ >= forming->give_up && !(enough && forming->folder_read && forming->trouble.empty())) {
    return Finish({Outcome::Kind::kFailed, kExitTimeout,
                   absl::StrCat("time-out after ", ToSeconds(spec_.join_timeout),
                                " s: ", MissingNodes(*forming, now_)),
                   std::nullopt});
  }
  if (!enough) forming->last_call = kNever;
  if (!enough || !forming->folder_read) return;
  if (now_ < forming->not_before || now_ < forming->retry_at) return;
  if (WorthWaiting(*forming)) return;
  RankPlan plan = PlanOf(ChooseNodes(static_cast<size_t>(spec_.max_nodes)));
  if (plan.nodes.size() == 1 || Verified(plan)) return BecomeStarting(plan);
  Meet(std::move(plan));
}

// Enough nodes are here, but not as many as there could be.
bool CoordinatorState::WorthWaiting(Forming& forming) {
  const auto most = static_cast<size_t>(spec_.max_nodes);
  const size_t wanted = epoch_ ? std::min(most, epoch_->formed.nodes.size()) : most;
  if (members_.usable() >= wanted) return false;
  if (!epoch_ && !spec_.nodes.empty() && members_.usable() >= spec_.nodes.size()) return false;
  if (forming.last_call == kNever) {
    forming.last_call =
        std::min(epoch_ ? MembersMayBeBackUntil() : now_ + kLastCall, forming.give_up);
  }
  if (now_ >= forming.last_call && epoch_) {  // others may have left since
    forming.last_call = std::min(MembersMayBeBackUntil(), forming.give_up);
  }
  return now_ < forming.last_call;
}

// A member whose stream broke after its workers were gone gets as long as one whose workers live.
// One whose lease ended has had that time.
Instant CoordinatorState::MembersMayBeBackUntil() const {
  Instant until = now_;
  for (const NodeShare& share : epoch_->formed.nodes) {
    const Node* node = members_.Find(share.node);
    if (!node || node->connected || node->drained || node->part == Part::kLost) continue;
    until = std::max(until, node->since + spec_.lease);
  }
  return until;
}

// Members first. Of the others one with as many workers as a member that is missing is preferred,
// because then everybody else keeps their ranks.
std::vector<const Node*> CoordinatorState::ChooseNodes(size_t most) const {
  std::vector<const Node*> candidates;
  std::vector<const Node*> avoided;
  for (const Node* node : members_.Usable()) {
    (node->avoided.empty() ? candidates : avoided).push_back(node);
  }
  for (const Node* node : avoided) {
    if (candidates.size() < node->suffice) candidates.push_back(node);
  }
  if (candidates.size() <= most) return candidates;
  std::multiset<int> missing;
  if (epoch_) {
    for (const NodeShare& share : epoch_->formed.nodes) missing.insert(share.workers);
  }
  const auto take = [&](const Node* node) {
    const auto found = missing.find(members_.WorkersOn(*node));
    if (found == missing.end()) return false;
    missing.erase(found);
    return true;
  };
  std::vector<const Node*> chosen;
  std::vector<const Node*> others;
  for (const Node* node : candidates) {
    if (node->seat < 0) {
      others.push_back(node);
    } else {
      take(node);
      chosen.push_back(node);
    }
  }
  std::vector<const Node*> rest;
  for (const Node* node : others) (take(node) ? chosen : rest).push_back(node);
  chosen.insert(chosen.end(), rest.begin(), rest.end());
  chosen.resize(most);
  return chosen;
}

RankPlan CoordinatorState::PlanOf(const std::vector<const Node*>& nodes) const {
  std::vector<NodePlace> places;
  for (const Node* node : nodes) places.push_back(members_.PlaceOf(*node));
  std::vector<int> workers_of_seat;
  if (epoch_) {
    for (const NodeShare& share : epoch_->formed.nodes) workers_of_seat.push_back(share.workers);
  }
  return PlanRanks(std::move(places), workers_of_seat);
}

// ---- Where rank 0 is reached

// A network that was fine for the last epoch is taken to be fine, unless a node was lost since.
bool CoordinatorState::Verified(const RankPlan& plan) const {
  const Node& first = *members_.Find(plan.nodes.front().name);
  const std::string& place = members_.Find(plan.nodes[1].name)->verified;
  if (!absl::StartsWith(place, MeetingPlace(first, ""))) return false;
  return std::all_of(plan.nodes.begin() + 1, plan.nodes.end(), [&](const NodePlace& node) {
    return members_.Find(node.name)->verified == place;
  });
}

void CoordinatorState::Meet(RankPlan plan) {
  std::vector<ConnectBack::Peer> peers;
  for (const NodePlace& place : plan.nodes) {
    const Node& node = *members_.Find(place.name);
    peers.push_back({node.name, node.addresses, node.reserved_port, node.machine});
  }
  ConnectBack connect_back(std::move(peers), next_probe_);
  for (ProbeAddress& ask : connect_back.AskNext(now_)) Do(std::move(ask));
  next_probe_ = connect_back.next_probe();
  std::get<Forming>(phase_).meeting.emplace(Meeting{std::move(plan), std::move(connect_back)});
}

void CoordinatorState::TryMeet() {
  auto* forming = std::get_if<Forming>(&phase_);
  if (!forming || !forming->meeting) return;
  ConnectBack& connect_back = forming->meeting->connect_back;
  if (!connect_back.Complete(now_)) return;
  if (!connect_back.Judge()) {
    std::vector<ProbeAddress> asks = connect_back.AskNext(now_);
    next_probe_ = connect_back.next_probe();
    for (ProbeAddress& ask : asks) Do(std::move(ask));
    if (!asks.empty()) return;
  }
  const ConnectBack::Outcome& best = connect_back.Best();
  if (!best.unreached.empty()) return MeetingFailed(best);
  RankPlan plan = std::move(forming->meeting->plan);
  if (best.candidate > 0) {
    std::swap(plan.nodes.front(), plan.nodes[best.candidate]);
    absl::StrAppend(&plan.reason, "; ", plan.nodes.front().name, " has rank 0, because ",
                    connect_back.first_trouble());
  }
  const std::string place = MeetingPlace(*members_.Find(plan.nodes.front().name), best.address);
  for (const NodePlace& node : plan.nodes) {
    const auto own = best.own.find(node.name);
    members_.Verify(node.name, place, own == best.own.end() ? "" : own->second);
  }
  members_.Verify(plan.nodes.front().name, place, best.address);
  forming->trouble.clear();
  BecomeStarting(plan);
}

void CoordinatorState::CallOffMeeting(const std::string& node) {
  auto* forming = std::get_if<Forming>(&phase_);
  if (forming && forming->meeting && forming->meeting->connect_back.Has(node)) {
    forming->meeting.reset();
  }
}

// Those who are cut off are left out if the others are enough; else it is tried again.
void CoordinatorState::MeetingFailed(const ConnectBack::Outcome& outcome) {
  auto& forming = std::get<Forming>(phase_);
  const ConnectBack::Outcome best = outcome;
  forming.meeting.reset();
  const auto fewest = static_cast<size_t>(spec_.min_nodes);
  for (const std::string& name : best.unreached) members_.Avoid(name, best.trouble, fewest);
  const std::vector<const Node*> usable = members_.Usable();
  const auto others = static_cast<size_t>(std::count_if(
      usable.begin(), usable.end(), [](const Node* node) { return node->avoided.empty(); }));
  if (others >= fewest) {
    return Say(
        Announce::Level::kWarning,
        absl::StrCat(best.trouble, "; the epoch is formed without ", NameList(best.unreached)));
  }
  AvoidFailingNodes();
  forming.trouble = best.trouble;
  forming.retry_at = now_ + kMeetAgain;
  Say(Announce::Level::kWarning,
      absl::StrCat(best.trouble, "; it is tried again in ", ToSeconds(kMeetAgain), " s"));
}

// ---- The new epoch

EpochFormed CoordinatorState::FormedBy(const RankPlan& plan) const {
  EpochFormed formed;
  formed.epoch = epoch().Next();
  int next_rank = 0;
  for (const NodePlace& place : plan.nodes) {
    const Node& node = *members_.Find(place.name);
    const std::string address =
        node.address.empty() ? std::string(node.first_address()) : node.address;
    const auto own = std::find_if(node.addresses.begin(), node.addresses.end(),
                                  [&](const NodeAddress& a) { return a.address == address; });
    formed.nodes.push_back({node.name, node.machine, address, next_rank, place.workers,
                            own == node.addresses.end() ? "" : own->interface});
    next_rank += place.workers;
  }
  formed.master_address = formed.nodes.front().address;
  formed.master_port = members_.Find(plan.nodes.front().name)->reserved_port;
  formed.reason = std::get<Forming>(phase_).reason;
  if (plan.nodes.size() > 1) absl::StrAppend(&formed.reason, "; ", plan.reason);
  absl::StrAppend(&formed.reason, Absence(plan));
  formed.wall_ns = wall_ns_;
  formed.resume_step = ledger_.recovery_point();
  return formed;
}

// Which nodes of the last epoch are not in this one, and why.
std::string CoordinatorState::Absence(const RankPlan& plan) const {
  if (!epoch_) return "";
  std::set<absl::string_view> now;
  for (const NodePlace& place : plan.nodes) now.insert(place.name);
  std::vector<std::string> absent;
  for (const NodeShare& share : epoch_->formed.nodes) {
    if (now.contains(share.node)) continue;
    const NodeView view = ViewOf(*members_.Find(share.node));
    absent.push_back(
        absl::StrCat(share.node, " (",
                     view.reason.empty() ? NodeStandingName(view.standing) : view.reason, ")"));
  }
  return absent.empty() ? "" : absl::StrCat("; without ", NameList(absent));
}

void CoordinatorState::TellWhatIsWaitedFor() {
  auto* forming = std::get_if<Forming>(&phase_);
  if (!forming || now_ < forming->next_word) return;
  forming->next_word = now_ + kWordEvery;
  Say(Announce::Level::kInfo, ExplainForming(*forming, now_));
}

}  // namespace trainctl
