#include <algorithm>
#include <cmath>
#include <cstddef>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "launcher/coordinator/coordinator_state.h"

namespace trainctl {
namespace {

std::string Seconds(Duration duration) { return absl::StrFormat("%.1f s", ToSeconds(duration)); }

std::string Names(const std::vector<const Node*>& nodes) {
  std::vector<std::string> names;
  for (const Node* node : nodes) {
    names.push_back(absl::StrCat(node->name, node->connected ? "" : " (not connected)"));
  }
  return NameList(names);
}

std::string WholeSeconds(Duration duration) {
  return absl::StrFormat("%.0f s", std::floor(ToSeconds(duration)));
}

}  // namespace

std::string StepWord(Step step) {
  return step < Step(0) ? "the beginning" : absl::StrCat("step ", step.value);
}

std::string Workers(size_t count) {
  return absl::StrCat(count, count == 1 ? " worker" : " workers");
}

const char* JobPhaseName(JobPhase phase) {
  switch (phase) {
    case JobPhase::kForming:
      return "forming";
    case JobPhase::kStarting:
      return "starting";
    case JobPhase::kRunning:
      return "running";
    case JobPhase::kDraining:
      return "draining";
    case JobPhase::kFinished:
      return "finished";
  }
  return "unknown";
}

const char* NodeStandingName(NodeStanding standing) {
  switch (standing) {
    case NodeStanding::kExpected:
      return "expected";
    case NodeStanding::kReady:
      return "ready";
    case NodeStanding::kSpare:
      return "spare";
    case NodeStanding::kMember:
      return "member";
    case NodeStanding::kLate:
      return "late";
    case NodeStanding::kLost:
      return "lost";
    case NodeStanding::kFenced:
      return "fenced";
    case NodeStanding::kAway:
      return "away";
    case NodeStanding::kDrained:
      return "drained";
    case NodeStanding::kUnfit:
      return "unfit";
  }
  return "unknown";
}

std::string CoordinatorState::Explain(Instant now) const {
  if (const auto* forming = std::get_if<Forming>(&phase_)) return ExplainForming(*forming, now);
  if (In<Starting>()) return ExplainStarting(now);
  if (In<Running>()) return ExplainRunning(now);
  if (const auto* draining = std::get_if<Draining>(&phase_)) {
    return absl::StrCat("waits until the workers of epoch ", epoch().value, " on ",
                        Names(members_.HoldingWorkers()), " are gone, because ",
                        stop_               ? "the job is to stop: " + stop_->reason
                        : draining->failure ? draining->failure->reason
                                            : draining->replaced);
  }
  const Outcome& outcome = std::get<Ended>(phase_).outcome;
  return absl::StrCat(OutcomeName(outcome.kind), ": ", outcome.reason);
}

std::string CoordinatorState::ExplainForming(const Forming& forming, Instant now) const {
  const std::string next = absl::StrCat("epoch ", epoch().value + 1);
  if (!forming.folder_read) {
    return absl::StrCat("waits for the checkpoint folder ", spec_.checkpoint_folder,
                        " to say where ", next, " starts");
  }
  if (forming.meeting) {
    const ConnectBack& connect_back = forming.meeting->connect_back;
    return absl::StrCat("waits for ", NameList(connect_back.Waited()), " to say at which address ",
                        connect_back.candidate().name, " is reached, where the workers of ", next,
                        " are to meet");
  }
  if (forming.not_before > now) {
    return absl::StrCat("waits ", Seconds(forming.not_before - now), " before ", next, ", because ",
                        forming.reason);
  }
  const bool enough = members_.usable() >= static_cast<size_t>(spec_.min_nodes);
  if (enough && !forming.trouble.empty()) {
    return absl::StrCat("cannot form ", next, ": ", forming.trouble, "; it is tried again in ",
                        Seconds(std::max(forming.retry_at - now, Duration(0))));
  }
  if (enough && forming.last_call != kNever) {
    return absl::StrCat("waits ", Seconds(std::max(forming.last_call - now, Duration(0))),
                        " for nodes beyond the ", members_.usable(), " that are enough for ", next);
  }
  return absl::StrCat("waits for nodes for ", next, " since ", WholeSeconds(now - forming.since),
                      " (of at most ", WholeSeconds(forming.give_up - forming.since),
                      "): ", MissingNodes(forming, now));
}

// How many are here, and who is missing, as far as that is known.
std::string CoordinatorState::MissingNodes(const Forming& forming, Instant now) const {
  std::vector<std::string> here;
  std::vector<std::string> absent;
  std::set<int> positions;
  for (const Node* node : members_.All()) {
    if (node->usable()) {
      here.push_back(node->name);
      if (node->position >= 0) positions.insert(node->position);
      continue;
    }
    const NodeView view = ViewOf(*node);
    std::string why = view.reason;
    if (!node->connected && !node->left_reason.empty()) {
      absl::StrAppend(&why, ", ", WholeSeconds(now - node->since), " ago");
    }
    absent.push_back(absl::StrCat(node->name, why.empty() ? "" : absl::StrCat(" (", why, ")")));
  }
  std::string text;
  if (!forming.folder_read) {
    text = absl::StrCat("the checkpoint folder ", spec_.checkpoint_folder, " has not answered; ");
  }
  const auto wanted = static_cast<size_t>(spec_.min_nodes);
  absl::StrAppend(&text, here.size(), " of ", wanted, wanted == 1 ? " node is" : " nodes are",
                  " here");
  if (!here.empty()) absl::StrAppend(&text, " (", NameList(here), ")");
  if (!absent.empty()) absl::StrAppend(&text, ", missing: ", NameList(absent));
  const bool ranks_known = absent.empty() && positions.size() == here.size() && !here.empty();
  if (ranks_known && here.size() < wanted) {
    std::vector<std::string> ranks;
    for (int rank = 0; rank < spec_.min_nodes; ++rank) {
      if (!positions.contains(rank)) ranks.push_back(absl::StrCat(rank));
    }
    absl::StrAppend(&text, ", missing: node rank ", NameList(ranks));
  }
  if (!forming.trouble.empty()) absl::StrAppend(&text, "; ", forming.trouble);
  return text;
}

std::string CoordinatorState::ExplainStarting(Instant now) const {
  const std::string epoch_name = absl::StrCat("epoch ", epoch().value);
  std::vector<const Node*> waited = members_.HoldingWorkers();
  std::erase_if(waited, [](const Node* node) { return node->part != Part::kStarting; });
  std::vector<const Node*> absent = waited;
  std::erase_if(absent, [](const Node* node) { return node->connected; });
  if (!absent.empty()) {
    return absl::StrCat("waits ", Seconds(members_.next_lease_end() - now), " for ", Names(absent),
                        " to come back with the workers of ", epoch_name);
  }
  return absl::StrCat("waits for ", Names(waited), " to start the workers of ", epoch_name);
}

std::string CoordinatorState::ExplainRunning(Instant now) const {
  std::string text =
      absl::StrCat("epoch ", epoch().value, " runs: ", Workers(epoch_->world_size()));
  if (epoch_->last_step > trainctl::Step(0)) {
    absl::StrAppend(&text, ", step ", epoch_->last_step.value);
  }
  if (epoch_->total_steps > trainctl::Step(0)) {
    absl::StrAppend(&text, " of ", epoch_->total_steps.value);
  }
  if (epoch_->ended > 0) absl::StrAppend(&text, ", ", epoch_->ended, " of them done");
  if (stop_) absl::StrAppend(&text, "; waits until they have saved and ended");
  if (const std::string wish = WishForOtherNodes(); !wish.empty()) {
    absl::StrAppend(&text, "; changes nodes at the next ",
                    spec_.checkpoint_folder.empty() ? "epoch" : "recovery point", ", because ",
                    wish);
  }
  std::vector<const Node*> away = members_.HoldingWorkers();
  std::erase_if(away, [](const Node* node) { return node->connected; });
  if (!away.empty()) {
    absl::StrAppend(&text, "; waits ", Seconds(members_.next_lease_end() - now), " for ",
                    Names(away), " to come back");
  }
  return text;
}

NodeView CoordinatorState::ViewOf(const Node& node) const {
  NodeView view;
  view.node = node.name;
  view.standing = members_.StandingOf(node);
  view.address = node.address.empty() ? std::string(node.first_address()) : node.address;
  view.slots = node.slots;
  view.since = node.since;
  if (Live() && node.part == Part::kGone && node.connected) view.standing = NodeStanding::kMember;
  if (Live() && view.standing == NodeStanding::kReady) view.standing = NodeStanding::kSpare;
  if (node.seat >= 0 && (Live() || In<Draining>())) {
    view.workers = epoch_->formed.nodes[static_cast<size_t>(node.seat)].workers;
  }
  if (!node.connected && !node.left_reason.empty()) {
    view.reason = node.left_reason;
  } else if (view.standing == NodeStanding::kFenced) {
    view.reason = "old workers still there";
  } else if (node.drained) {
    view.reason = "drained";
  } else {
    view.reason = node.unfit.empty() ? node.avoided : node.unfit;
  }
  return view;
}

JobView CoordinatorState::View(Instant now) const {
  JobView view;
  view.phase = phase();
  view.term = term_;
  view.epoch = epoch();
  view.recovery_point = ledger_.recovery_point();
  view.explain = Explain(now);
  for (const Node* node : members_.All()) view.nodes.push_back(ViewOf(*node));
  if (!epoch_) return view;
  view.world_size = epoch_->formed.world_size();
  view.restarts = static_cast<int>(epoch_->formed.epoch.value);
  view.step = epoch_->last_step;
  view.total_steps = epoch_->total_steps;
  view.ranks = RanksOf(epoch_->formed);
  return view;
}

}  // namespace trainctl
