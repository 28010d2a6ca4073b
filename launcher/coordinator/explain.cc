#include <algorithm>
#include <cstddef>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "launcher/coordinator/coordinator_state.h"

namespace trainctl {
namespace {

std::string Seconds(Duration duration) { return absl::StrFormat("%.1f s", ToSeconds(duration)); }

std::string Names(const std::vector<const Node*>& nodes) {
  return absl::StrJoin(nodes, ", ", [](std::string* out, const Node* node) {
    absl::StrAppend(out, node->name, node->connected ? "" : " (not connected)");
  });
}

}  // namespace

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
  const std::string epoch = absl::StrCat("epoch ", CurrentEpochNumber().value);
  if (const auto* forming = std::get_if<Forming>(&phase_)) {
    const std::string next = absl::StrCat("epoch ", CurrentEpochNumber().value + 1);
    if (!forming->folder_read) {
      return absl::StrCat("waits for the checkpoint folder ", spec_.checkpoint_folder,
                          " to say where ", next, " starts");
    }
    if (forming->not_before > now) {
      return absl::StrCat("waits ", Seconds(forming->not_before - now), " before ", next,
                          ", because ", forming->reason);
    }
    if (forming->last_call != kNever) {
      return absl::StrCat("waits ", Seconds(forming->last_call - now), " for nodes beyond the ",
                          spec_.min_nodes, " that are enough for ", next);
    }
    return absl::StrCat("waits for nodes for ", next, ", ", Seconds(forming->give_up - now),
                        " more: ", MissingNodes());
  }
  if (In<Starting>()) {
    std::vector<const Node*> waited = members_.HoldingWorkers();
    std::erase_if(waited, [](const Node* node) { return node->part != Part::kStarting; });
    std::vector<const Node*> absent = waited;
    std::erase_if(absent, [](const Node* node) { return node->connected; });
    if (!absent.empty()) {
      return absl::StrCat("waits ", Seconds(members_.next_lease_end() - now), " for ",
                          Names(absent), " to come back with the workers of ", epoch);
    }
    return absl::StrCat("waits for ", Names(waited), " to start the workers of ", epoch);
  }
  if (In<Running>()) {
    std::string text = absl::StrCat(epoch, " runs: ", Workers(epoch_->ranks.size()));
    if (epoch_->last_step > trainctl::Step(0)) {
      absl::StrAppend(&text, ", step ", epoch_->last_step.value);
    }
    if (epoch_->total_steps > trainctl::Step(0)) {
      absl::StrAppend(&text, " of ", epoch_->total_steps.value);
    }
    if (!epoch_->exits.empty()) {
      absl::StrAppend(&text, ", ", epoch_->exits.size(), " of them done");
    }
    if (stop_) absl::StrAppend(&text, "; waits until they have saved and ended");
    std::vector<const Node*> away = members_.HoldingWorkers();
    std::erase_if(away, [](const Node* node) { return node->connected; });
    if (!away.empty()) {
      absl::StrAppend(&text, "; waits ", Seconds(members_.next_lease_end() - now), " for ",
                      Names(away), " to come back");
    }
    return text;
  }
  if (const auto* draining = std::get_if<Draining>(&phase_)) {
    return absl::StrCat("waits until the workers of ", epoch, " on ",
                        Names(members_.HoldingWorkers()), " are gone, because ",
                        stop_ || !draining->failure ? "the job is to stop: " + stop_->reason
                                                    : draining->failure->reason);
  }
  const Outcome& outcome = std::get<Ended>(phase_).outcome;
  return absl::StrCat(OutcomeName(outcome.kind), ": ", outcome.reason);
}

JobView CoordinatorState::View(Instant now) const {
  JobView view;
  view.phase = static_cast<JobPhase>(phase_.index());
  view.term = term_;
  view.epoch = CurrentEpochNumber();
  view.recovery_point = ledger_.recovery_point();
  view.explain = Explain(now);
  if (!epoch_) return view;
  view.world_size = static_cast<int>(epoch_->ranks.size());
  view.restarts = static_cast<int>(epoch_->formed.epoch.value);
  view.step = epoch_->last_step;
  view.total_steps = epoch_->total_steps;
  view.ranks = epoch_->ranks;
  return view;
}

}  // namespace trainctl
