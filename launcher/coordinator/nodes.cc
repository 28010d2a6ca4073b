#include <algorithm>
#include <cstdint>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "launcher/coordinator/coordinator_state.h"
#include "launcher/coordinator/exit_status.h"

namespace trainctl {
namespace {

constexpr size_t kRefusalsSaid = 256;  // nodes that are refused may come again and again

}  // namespace

// ---- Joining and leaving

void CoordinatorState::On(const NodeJoined& event) {
  if (In<Ended>()) return Do(ReleaseNode{event.node});
  const Membership::JoinDecision decision = members_.Join(event);
  if (!decision.accepted) {
    if (decision.old) ++dropped_;
    const bool too_small = event.slots < std::max(spec_.workers_per_node, 1);
    if (In<Forming>() && spec_.max_nodes == 1 && too_small) {
      const int status = event.unfit.empty() ? kExitUsage : kExitNotFit;
      return Finish({Outcome::Kind::kFailed, status, decision.reason, std::nullopt});
    }
    return Refuse(event, decision.reason);
  }
  CallOffMeeting(event.node);
  const Node& node = *members_.Find(event.node);
  if (node.holds_workers()) return MemberIsBack(node, event.workers);
  if (!node.gone) return StopOn(node, Duration(0));  // an epoch that went on without it
  AskForRecoveryPoint();
}

void CoordinatorState::Refuse(const NodeJoined& event, const std::string& reason) {
  Do(RefuseNode{event.node, event.incarnation, event.machine, reason});
  if (refusals_.size() < kRefusalsSaid && refusals_.insert(reason).second) {
    Say(Announce::Level::kWarning, absl::StrCat("refused: ", reason));
  }
}

// A member of the current epoch tells its state: after its stream broke, or after we restarted.
void CoordinatorState::MemberIsBack(const Node& node, const std::vector<WorkerState>& workers) {
  const bool knows_epoch = node.shim_epoch == epoch();
  if (knows_epoch) RecordStart();
  if (In<Draining>()) {
    if (knows_epoch) TakeExits(node, workers);
    const bool had_workers = node.part == Part::kStarted || epoch_->started_before;
    if (!knows_epoch && had_workers) {
      std::get<Draining>(phase_).lost =
          JudgeLostNode(epoch(), node.name, "it came back without its workers");
    }
    if (node.gone) {
      members_.MarkGone(node.name);
    } else {
      StopOn(node, stop_ || knows_epoch ? spec_.grace : Duration(0));
    }
    return TryEndDraining();
  }
  if (knows_epoch && !node.gone && !node.unfit.empty()) {
    Failure leaves;
    leaves.failure_class = FailureClass::kPreempted;
    leaves.node = node.name;
    leaves.epoch = epoch();
    leaves.reason = absl::StrCat("node ", node.name, " cannot run workers any more: ", node.unfit);
    return Condemn(std::move(leaves));
  }
  if (knows_epoch) {
    // Without a word about workers, the order has reached it and they are being started.
    if (!workers.empty()) members_.MarkStarted(node.name, node.reserved_port);
    if (node.gone) members_.MarkGone(node.name);
    if (!node.gone && (stop_ || epoch_->save_asked)) AskCheckpoint(node, stop_.has_value());
    TakeExits(node, workers);
    TryRun();
    return JudgeEpoch();
  }
  // The order never arrived; unless workers of this epoch ran before we did: then the node lost it.
  const bool can_start = node.gone && node.unfit.empty();
  if (node.part == Part::kStarting && can_start && !epoch_->started_before) {
    members_.ToldToStart(node.name, epoch());
    return StartOn(node);
  }
  if (node.gone) members_.MarkGone(node.name);
  Condemn(JudgeLostNode(epoch(), node.name, "it came back without its workers"));
}

void CoordinatorState::On(const NodeLeft& event) {
  CallOffMeeting(event.node);
  if (!Live() || !members_.Find(event.node)->holds_workers()) return;
  Say(Announce::Level::kWarning,
      absl::StrCat("the connection to node ", event.node, " broke (", event.reason,
                   "); its workers go on until its lease ends"));
}

void CoordinatorState::On(const AddressesReached& event) {
  auto* forming = std::get_if<Forming>(&phase_);
  if (forming && forming->meeting) forming->meeting->connect_back.Take(event);
}

// ---- Leases

void CoordinatorState::On(const LeaseRequested& event) {
  const auto* draining = std::get_if<Draining>(&phase_);
  const bool patience_over = draining && now_ >= draining->patience;
  Membership::LeaseDecision decision{false, "the job is over"};
  if (!In<Ended>()) decision = members_.DecideLease(event, epoch(), patience_over);
  if (!decision.granted) ++dropped_;
  Do(AnswerLease{event.node, event.request_id, decision.granted, spec_.lease});
}

std::string CoordinatorState::WhyLost(const Node& node) const {
  if (!node.connected) {
    return absl::StrCat("not connected (", node.left_reason, ") until its lease ended");
  }
  const auto* draining = std::get_if<Draining>(&phase_);
  if (draining && now_ >= draining->patience) return "its workers do not end";
  return absl::StrCat("not heard from for ", (now_ - node.answered) / seconds(1),
                      " s (its traind or its shim hangs, or the link is cut)");
}

void CoordinatorState::EndLeases() {
  std::vector<std::string> lost;
  std::string why;
  auto* draining = std::get_if<Draining>(&phase_);
  bool silent_before = false;
  while (const Node* node = members_.EndOneLease()) {
    if (lost.empty()) why = WhyLost(*node);
    silent_before |= draining && node->answered <= draining->since;
    lost.push_back(node->name);
    Persist(NodeLost{epoch(), node->name, wall_ns_});
    StopOn(*node, Duration(0));
  }
  if (lost.empty()) return;
  Failure failure = JudgeLostNode(epoch(), lost.front(), why);
  if (lost.size() > 1) {  // what they have in common is at fault, and none of them
    failure.node.clear();
    failure.reason = absl::StrCat("nodes ", NameList(lost), " were lost: ", why);
  }
  if (Live()) return Condemn(std::move(failure));
  Say(Announce::Level::kWarning, failure.reason);
  if (silent_before) draining->lost = std::move(failure);
}

// ---- Workers

void CoordinatorState::RecordStart() {
  if (epoch_->started) return;
  epoch_->started = true;
  Persist(EpochStarted{epoch()});
}

void CoordinatorState::On(const WorkersStarted& event) {
  RecordStart();
  members_.MarkStarted(event.node, event.reserved_port);
  const Node& node = *members_.Find(event.node);
  if (Live() && (stop_ || epoch_->save_asked)) AskCheckpoint(node, stop_.has_value());
  TakeExits(node, event.workers);
  TryRun();
  JudgeEpoch();
}

void CoordinatorState::On(const WorkerExited& event) {
  TakeExit(*members_.Find(event.node), event.rank, event.exit);
  JudgeEpoch();
}

void CoordinatorState::TakeExits(const Node& node, const std::vector<WorkerState>& workers) {
  for (const WorkerState& worker : workers) {
    if (!worker.running) TakeExit(node, worker.rank, worker.exit);
  }
}

// Told once or more often, an end counts once; one that is not that node's is nobody's.
void CoordinatorState::TakeExit(const Node& node, int rank, const WorkerExit& exit) {
  if (node.seat < 0) return;
  const NodeShare& share = epoch_->formed.nodes[static_cast<size_t>(node.seat)];
  const bool placed = rank >= share.first_rank && rank < share.first_rank + share.workers;
  if (!placed || epoch_->told[static_cast<size_t>(rank)]) return;
  epoch_->told[static_cast<size_t>(rank)] = true;
  ++epoch_->ended;
  if (IsFailure(exit)) {
    epoch_->failures.push_back({rank, node.name, exit});
  } else if (!exit.by_us) {
    ++epoch_->done;
  }
}

// Whose ends nobody could tell, because their supervisor was gone, too.
void CoordinatorState::TakeUntold(const Node& node) {
  if (node.seat < 0) return;
  WorkerExit untold;
  untold.kind = WorkerExit::Kind::kLost;
  untold.exit_ns = std::numeric_limits<int64_t>::max();  // no earlier than any that is known
  const NodeShare& share = epoch_->formed.nodes[static_cast<size_t>(node.seat)];
  for (int i = 0; i < share.workers; ++i) TakeExit(node, share.first_rank + i, untold);
}

void CoordinatorState::On(const NodeEpochGone& event) {
  const bool had_workers = members_.Find(event.node)->part == Part::kStarted;
  members_.MarkGone(event.node);
  const Node& node = *members_.Find(event.node);
  const bool current = event.epoch == epoch();
  if (current && (Live() || (In<Draining>() && had_workers))) TakeUntold(node);
  if (Live() && current) return JudgeEpoch();
  if (In<Draining>()) TryEndDraining();
  if (!In<Ended>()) RefuseSurplus(node);
}

// A node that came back with old workers when its place was taken.
void CoordinatorState::RefuseSurplus(const Node& node) {
  const std::string reason = members_.Surplus(node);
  if (reason.empty()) return;
  Do(RefuseNode{node.name, node.incarnation, node.machine, reason});
  members_.Leave({node.name, node.incarnation, reason});
}

// ---- Other nodes for a living job

void CoordinatorState::On(const DrainAsked& event) {
  if (In<Ended>()) return;
  const Node* node = members_.Find(event.node);
  if (!node) {
    return Say(Announce::Level::kWarning, absl::StrCat("the job has no node ", event.node, " to ",
                                                       event.drain ? "drain" : "undrain"));
  }
  const bool forgiven = !event.drain && policy_.Forgive(event.node);
  if (node->drained == event.drain && !forgiven) return;
  if (forgiven) members_.Avoid(event.node, "", 0);
  Persist(NodeDrained{event.node, event.drain, wall_ns_});
  members_.MarkDrained(event.node, event.drain);
  CallOffMeeting(event.node);
  std::string text = absl::StrCat("node ", event.node,
                                  event.drain ? " is drained by " : " is undrained by ", event.by);
  if (event.drain && node->holds_workers()) {
    const bool spared = !WishForOtherNodes().empty();
    absl::StrAppend(&text, ": its workers go on until ",
                    In<Running>() && !spared ? "others can take their place"
                    : spec_.checkpoint_folder.empty()
                        ? "their epoch ends, because the job has no checkpoints to go on from"
                        : "the next checkpoint is saved");
  }
  Say(Announce::Level::kInfo, std::move(text));
  AskForRecoveryPoint();
}

// Nothing of a user's work is thrown away for a change of nodes: it happens at a recovery point,
// and not at all where workers save none.
std::string CoordinatorState::WishForOtherNodes() const {
  if (!In<Running>() || stop_ || epoch_->ended > 0) return "";
  std::vector<std::string> drained;
  std::vector<std::string> settled;  // for so long that they are worth a new epoch
  size_t idle = 0;
  for (const Node* node : members_.All()) {
    if (node->holds_workers() && node->drained) drained.push_back(node->name);
    if (node->part != Part::kNone || !node->usable() || !node->avoided.empty()) continue;
    ++idle;
    if (now_ >= node->joined_at + spec_.lease) settled.push_back(node->name);
  }
  const size_t members = epoch_->formed.nodes.size();
  const bool others_suffice =
      members - drained.size() + idle >= static_cast<size_t>(spec_.min_nodes);
  if (!drained.empty() && others_suffice) {
    return absl::StrCat(NameList(drained), drained.size() == 1 ? " is" : " are", " drained");
  }
  if (members < static_cast<size_t>(spec_.max_nodes) && !settled.empty()) {
    return absl::StrCat(NameList(settled), " joined");
  }
  return "";
}

// A drained node is wanted for something else, so the recovery point is not left to chance.
void CoordinatorState::AskForRecoveryPoint() {
  if (members_.drained_members() == 0 || !In<Running>() || epoch_->save_asked) return;
  if (spec_.checkpoint_folder.empty() || WishForOtherNodes().empty()) return;
  epoch_->save_asked = true;
  for (const Node* node : members_.HoldingWorkers()) AskCheckpoint(*node, false);
}

void CoordinatorState::ChangeNodesIfWished() {
  if (std::string wish = WishForOtherNodes(); !wish.empty()) Replace(std::move(wish));
}

}  // namespace trainctl
