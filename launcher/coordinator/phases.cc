#include <algorithm>
#include <cstddef>
#include <utility>

#include "absl/strings/str_cat.h"
#include "launcher/coordinator/coordinator_state.h"
#include "launcher/coordinator/exit_status.h"

namespace trainctl {
bool CurrentEpoch::stepped() const { return last_step > std::max(baseline, Step(0)); }

EpochEvidence CurrentEpoch::Evidence(const JobSpec& spec) const {
  return {formed.epoch, failures, stepped(), found_damage, formed.nodes, spec.preemptible};
}

CurrentEpoch::CurrentEpoch(EpochFormed epoch)
    : formed(std::move(epoch)),
      told(static_cast<size_t>(formed.world_size())),
      baseline(formed.resume_step),
      last_step(std::max(formed.resume_step, trainctl::Step(0))) {}

// ---- Starting and running

void CoordinatorState::BecomeStarting(const RankPlan& plan) {
  EpochFormed formed = FormedBy(plan);
  Persist(formed);
  ledger_.BeginEpoch();
  members_.BeginEpoch(formed);
  epoch_.emplace(std::move(formed));
  epoch_->since = now_;
  phase_ = Starting{};

  OpenEpochStore();
  std::vector<std::string> names;
  for (const NodeShare& share : epoch_->formed.nodes) {
    StartOn(*members_.Find(share.node));
    names.push_back(share.node);
  }
  Say(Announce::Level::kInfo,
      absl::StrCat("epoch ", epoch().value, ": ", Workers(epoch_->world_size()), " on ",
                   NameList(names),
                   spec_.checkpoint_folder.empty()
                       ? ""
                       : absl::StrCat(", from ", StepWord(epoch_->formed.resume_step))));
}

void CoordinatorState::OpenEpochStore() {
  OpenStore store{epoch(), {}};
  for (const NodeShare& share : epoch_->formed.nodes) {
    store.node_of_rank.insert(store.node_of_rank.end(), static_cast<size_t>(share.workers),
                              share.node);
  }
  Do(std::move(store));
}

void CoordinatorState::StartOn(const Node& node) {
  if (!epoch_->planner) epoch_->planner = std::make_unique<WorkerPlanner>(spec_, epoch_->formed);
  Do(epoch_->planner->Plan(static_cast<size_t>(node.seat), node.cores));
}

void CoordinatorState::AskCheckpoint(const Node& node, bool then_stop) {
  if (node.connected) Do(RequestCheckpoint{node.name, epoch(), then_stop});
}

void CoordinatorState::TryRun() {
  if (!In<Starting>() || members_.starting() > 0) return;
  phase_ = Running{};
  AskForRecoveryPoint();
}

void CoordinatorState::JudgeEpoch() {
  if (!Live()) return;
  if (!epoch_->failures.empty()) {  // the evidence names every node
    if (std::optional<Failure> failure = JudgeExits(epoch_->Evidence(spec_))) {
      return Condemn(WithGpuFaults(*std::move(failure)));
    }
  }
  if (epoch_->ended < epoch_->world_size()) return;
  if (stop_) return FinishStopped();
  Succeed();
}

// ---- Draining

void CoordinatorState::Condemn(Failure failure, bool hung) {
  if (!Live()) return;
  Persist(EpochCondemned{epoch(), failure, wall_ns_, epoch_->last_step});
  const bool alone = epoch_->world_size() == 1;
  Say(Announce::Level::kWarning,
      absl::StrCat(failure.reason, alone ? "" : "; the other workers are stopped"));
  BecomeDraining(Draining{std::move(failure), Instant{}, "", hung}, spec_.grace);
}

void CoordinatorState::Replace(std::string reason) {
  Persist(EpochReplaced{epoch(), reason, wall_ns_, epoch_->last_step});
  Say(Announce::Level::kInfo, absl::StrCat(reason, "; the workers are stopped and go on from ",
                                           StepWord(ledger_.recovery_point()), " on other nodes"));
  BecomeDraining(Draining{std::nullopt, Instant{}, std::move(reason)}, spec_.grace);
}

void CoordinatorState::BecomeDraining(Draining draining, Duration grace) {
  draining.since = now_;
  draining.patience = now_ + grace + spec_.lease;
  const bool abort = draining.hung;
  phase_ = std::move(draining);
  for (const Node* node : members_.HoldingWorkers()) StopOn(*node, grace, abort);
  TryEndDraining();
}

void CoordinatorState::StopOn(const Node& node, Duration grace, bool abort) {
  if (node.connected) Do(StopWorkers{node.name, node.shim_epoch, grace, abort});
}

void CoordinatorState::TryEndDraining() {
  if (members_.holding() > 0) return;
  auto& draining = std::get<Draining>(phase_);
  if (stop_) return FinishStopped();
  if (!draining.failure) {
    if (epoch_->done == epoch_->world_size()) return Succeed();  // they ended before they were told
    return BecomeForming(draining.replaced, Duration(0));
  }
  Failure failure = *std::move(draining.failure);
  // Now all ends are known, and the first one told need not be the one that caused the others.
  std::optional<Failure> judged;
  if (draining.hung) {
    for (const RankExit& end : epoch_->failures) {
      if (end.rank == failure.rank) failure.exit = end.exit;  // with its last words
    }
    PersistWithNext(EpochCondemned{epoch(), failure, wall_ns_, epoch_->last_step});
  } else if (failure.rank >= 0) {
    judged = JudgeExits(epoch_->Evidence(spec_));
  }
  // A peer's loss is seen at once, its node's only when the lease ends.
  if (draining.lost && IsVictim(judged ? *judged : failure)) judged = std::move(draining.lost);
  if (judged && judged->rank != failure.rank) {
    Say(Announce::Level::kWarning, absl::StrCat("the cause was another: ", judged->reason));
    failure = *std::move(judged);
    PersistWithNext(EpochCondemned{epoch(), failure, wall_ns_, epoch_->last_step});
  }
  // The driver may tell of a broken GPU after its worker has ended.
  if (Failure explained = WithGpuFaults(failure); explained.reason != failure.reason) {
    if (explained.failure_class != failure.failure_class) {
      Say(Announce::Level::kWarning, absl::StrCat("the cause was another: ", explained.reason));
    }
    failure = std::move(explained);
    PersistWithNext(EpochCondemned{epoch(), failure, wall_ns_, epoch_->last_step});
  }
  RestartOrFail(std::move(failure));
}

EpochEnd CoordinatorState::EndOf(const Failure& failure) const {
  EpochEnd end;
  end.at = now_;
  end.failure_class = failure.failure_class;
  end.node = failure.node;
  end.resume_step = epoch_->baseline;
  end.last_step = epoch_->last_step;
  end.ran = now_ - epoch_->since;
  end.found_damage = epoch_->found_damage;
  return end;
}

void CoordinatorState::RestartOrFail(Failure failure) {
  const bool network_in_doubt = failure.failure_class == FailureClass::kNodeLost ||
                                failure.failure_class == FailureClass::kNetwork;
  if (network_in_doubt) members_.ForgetVerified();
  RestartDecision decision = policy_.Decide(spec_, EndOf(failure));
  const Node* node = members_.Find(failure.node);
  const bool broken = failure.failure_class == FailureClass::kHardware;
  if (broken && spec_.max_nodes == 1 && node && !node->unfit.empty()) {
    decision = {false, Duration(0), true, "the job has no other node"};
  }
  if (decision.restart) {
    Say(Announce::Level::kInfo, decision.reason);
    return BecomeForming(absl::StrCat(failure.reason, "; ", decision.reason), decision.delay);
  }
  const int status = FailedExitStatus(spec_, failure, decision.mendable);
  std::string reason = absl::StrCat(failure.reason, "; ", decision.reason);
  Finish({Outcome::Kind::kFailed, status, std::move(reason), std::move(failure)});
}

// ---- The end

void CoordinatorState::Stop(const StopAsked& asked) {
  if (In<Ended>()) return;
  const bool repeated = stop_.has_value();
  const bool preempted = asked.notice && spec_.preemptible && !asked.now;
  // An epoch without a step of its own has nothing to save, and a program that reports none does
  // not look for requests either.
  const bool wanted = asked.checkpoint || (preempted && Live() && epoch_->stepped());
  const bool save = wanted && !asked.now && Live() && !repeated && !spec_.checkpoint_folder.empty();
  if (!repeated) {
    stop_ = StopWish{asked.by, save, preempted};
    Persist(Stopping{asked.by, save, preempted});
    Say(Announce::Level::kInfo, absl::StrCat(preempted ? "preempted: " : "stopping: ", asked.by));
    if (asked.checkpoint && !save) {
      Say(Announce::Level::kWarning,
          "nothing can be saved: no worker with a checkpoint folder runs");
    }
  }
  if (In<Forming>()) return FinishStopped();
  if (In<Draining>()) {
    // The workers have their grace already; asking again, or for now, ends it. A scheduler makes
    // every node ask: that is not asking again.
    if (!asked.now && (!repeated || asked.by != stop_->reason)) return;
    for (const Node* node : members_.HoldingWorkers()) StopOn(*node, Duration(0));
    return;
  }
  if (save) {
    LimitSaving();
    for (const Node* node : members_.HoldingWorkers()) AskCheckpoint(*node, true);
    return;
  }
  if (repeated && (asked.checkpoint || preempted) && !asked.now) return;  // it is being saved
  stop_->checkpoint = false;
  if (repeated) Persist(Stopping{stop_->reason, false, stop_->preempted});
  BecomeDraining(Draining{}, asked.now ? Duration(0) : spec_.grace);
}

// Who wants the nodes back waits no longer than the grace. Half of it is for whoever does not
// answer the request: SIGTERM may still reach it.
void CoordinatorState::LimitSaving() {
  if (!stop_->preempted) return;
  stop_->until = now_ + spec_.grace / 2;
  stop_->over = now_ + spec_.grace;
}

void CoordinatorState::EndSaving() {
  Say(Announce::Level::kWarning, "the workers have not saved and ended in time; they are stopped");
  stop_->checkpoint = false;
  Persist(Stopping{stop_->reason, false, true});
  BecomeDraining(Draining{}, stop_->over - stop_->until);
}

void CoordinatorState::Succeed() {
  Finish({Outcome::Kind::kSucceeded, 0, absl::StrCat(Workers(epoch_->ended), " ended with code 0"),
          std::nullopt});
}

void CoordinatorState::FinishStopped() {
  const bool saved = stop_->checkpoint && Live();
  std::string reason = stop_->reason;
  if (saved && ledger_.recovery_point() >= Step(0)) {
    absl::StrAppend(&reason, "; ", StepWord(ledger_.recovery_point()), " is saved");
  }
  if (!stop_->preempted) {
    return Finish(
        {Outcome::Kind::kStopped, saved ? 0 : kExitFailed, std::move(reason), std::nullopt});
  }
  Failure preempted;
  preempted.failure_class = FailureClass::kPreempted;
  preempted.epoch = epoch();
  preempted.reason = stop_->reason;
  const int status = FailedExitStatus(spec_, preempted, true);
  Finish({Outcome::Kind::kPreempted, status, std::move(reason), std::move(preempted)});
}

void CoordinatorState::Finish(Outcome outcome) {
  Persist(Finished{outcome, wall_ns_});
  for (const Node* node : members_.All()) {
    if (node->connected) Do(ReleaseNode{node->name});
  }
  phase_ = Ended{outcome};
  Do(FinishJob{std::move(outcome)});
}

}  // namespace trainctl
