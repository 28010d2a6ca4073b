#include <algorithm>
#include <cstddef>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "launcher/coordinator/coordinator_state.h"
#include "launcher/coordinator/worker_env.h"

namespace trainctl {
namespace {

// With enough nodes for the smallest world, the first epoch waits this long for more.
constexpr Duration kLastCall = seconds(10);
constexpr int kFailedStatus = 1;
constexpr int kJoinTimeoutStatus = 6;

std::string StepWord(Step step) {
  return step < Step(0) ? "the beginning" : absl::StrCat("step ", step.value);
}

}  // namespace

EpochEvidence CurrentEpoch::Evidence() const {
  return {formed.epoch, exits, last_step > std::max(baseline, Step(0)), found_damage};
}

void CoordinatorState::Persist(JournalRecord record) {
  for (JournalRecord& earlier : deferred_) batch_->persist.push_back(std::move(earlier));
  deferred_.clear();
  batch_->persist.push_back(std::move(record));
}

// ---- Forming

void CoordinatorState::BecomeForming(std::string reason, Duration delay) {
  Forming forming;
  forming.reason = std::move(reason);
  forming.not_before = now_ + delay;
  forming.give_up = forming.not_before + spec_.join_timeout;
  forming.folder_read = spec_.checkpoint_folder.empty();
  const bool ask = !forming.folder_read;
  phase_ = std::move(forming);
  if (ask) Do(FindCheckpoints{});
  TryForm();
}

void CoordinatorState::TryForm() {
  auto* forming = std::get_if<Forming>(&phase_);
  if (!forming) return;
  std::vector<NodePlace> ready =
      members_.Ready(spec_.workers_per_node, epoch_ ? epoch_->ranks : std::vector<RankPlace>());
  const auto most = static_cast<size_t>(spec_.max_nodes);
  const bool enough = ready.size() >= static_cast<size_t>(spec_.min_nodes);
  if (now_ >= forming->give_up && !(enough && forming->folder_read)) {
    return Finish(
        {Outcome::Kind::kFailed, kJoinTimeoutStatus,
         absl::StrCat("time-out after ", ToSeconds(spec_.join_timeout), " s: ", MissingNodes()),
         std::nullopt});
  }
  if (!enough) forming->last_call = kNever;
  if (!enough || !forming->folder_read || now_ < forming->not_before) return;
  // Later epochs take who is there: everyone who lived was confirmed gone from the last one.
  if (!epoch_ && ready.size() < most) {
    if (forming->last_call == kNever)
      forming->last_call = std::min(now_ + kLastCall, forming->give_up);
    if (now_ < forming->last_call) return;
  }
  if (ready.size() > most) ready.resize(most);
  BecomeStarting(ready);
}

std::string CoordinatorState::MissingNodes() const {
  const auto* forming = std::get_if<Forming>(&phase_);
  std::vector<std::string> here;
  std::vector<std::string> absent;
  for (const Node* node : members_.All()) {
    if (!node->connected) {
      absent.push_back(absl::StrCat(node->name, " (", node->left_reason, ")"));
    } else if (!node->gone) {
      absent.push_back(absl::StrCat(node->name, " (old workers still there)"));
    } else if (node->slots < spec_.workers_per_node) {
      absent.push_back(absl::StrCat(node->name, " (only ", node->slots, " slots)"));
    } else {
      here.push_back(node->name);
    }
  }
  std::string text;
  if (forming && !forming->folder_read) {
    text = absl::StrCat("the checkpoint folder ", spec_.checkpoint_folder, " has not answered; ");
  }
  absl::StrAppend(&text, here.size(), " of ", spec_.min_nodes, " nodes are here");
  if (!here.empty()) absl::StrAppend(&text, " (", absl::StrJoin(here, ", "), ")");
  if (!absent.empty()) absl::StrAppend(&text, ", missing: ", absl::StrJoin(absent, ", "));
  return text;
}

// ---- Starting and running

void CoordinatorState::BecomeStarting(const std::vector<NodePlace>& nodes) {
  EpochFormed formed;
  const std::vector<RankPlace> before = epoch_ ? epoch_->ranks : std::vector<RankPlace>();
  RankPlan plan = PlanRanks(nodes, before, spec_.workers_per_node);
  formed.epoch = CurrentEpochNumber().Next();
  for (const RankPlace& place : plan.ranks) {
    if (formed.nodes.empty() || formed.nodes.back().node != place.node) {
      formed.nodes.push_back({place.node, "", place.address, place.rank, 0});
    }
    ++formed.nodes.back().workers;
  }
  formed.master_address = std::move(plan.master_address);
  formed.master_port = plan.master_port;
  formed.reason = std::get<Forming>(phase_).reason;
  if (nodes.size() > 1) absl::StrAppend(&formed.reason, "; ", plan.reason);
  formed.wall_ns = wall_ns_;
  formed.resume_step = ledger_.recovery_point();
  Persist(formed);

  ledger_.BeginEpoch();
  members_.BeginEpoch(formed.epoch, plan.ranks, now_);
  epoch_.emplace();
  epoch_->formed = formed;
  epoch_->ranks = std::move(plan.ranks);
  epoch_->since = now_;
  epoch_->baseline = formed.resume_step;
  epoch_->last_step = std::max(formed.resume_step, Step(0));
  phase_ = Starting{};

  OpenEpochStore();
  for (const std::string& name : NodesOf(epoch_->ranks)) StartOn(*members_.Find(name));
  Say(Announce::Level::kInfo,
      absl::StrCat("epoch ", formed.epoch.value, ": ", Workers(epoch_->ranks.size()), " on ",
                   absl::StrJoin(NodesOf(epoch_->ranks), ", "),
                   spec_.checkpoint_folder.empty()
                       ? ""
                       : absl::StrCat(", from ", StepWord(formed.resume_step))));
}

void CoordinatorState::OpenEpochStore() {
  OpenStore store{epoch_->formed.epoch, {}};
  for (const RankPlace& place : epoch_->ranks) store.node_of_rank.push_back(place.node);
  Do(std::move(store));
}

void CoordinatorState::StartOn(const Node& node) {
  Do(PlanWorkers(spec_, epoch_->formed, node.name, node.cores));
}

void CoordinatorState::AskCheckpoint(const Node& node) {
  if (node.connected) Do(RequestCheckpoint{node.name, CurrentEpochNumber(), true});
}

void CoordinatorState::TryRun() {
  if (In<Starting>() && members_.AllStarted()) phase_ = Running{};
}

void CoordinatorState::JudgeEpoch() {
  if (!Live()) return;
  if (std::optional<Failure> failure = JudgeExits(epoch_->Evidence())) {
    return Condemn(*std::move(failure));
  }
  if (epoch_->exits.size() < epoch_->ranks.size()) return;
  if (stop_) return FinishStopped();
  Finish({Outcome::Kind::kSucceeded, 0,
          absl::StrCat(Workers(epoch_->exits.size()), " ended with code 0"), std::nullopt});
}

// ---- Draining

void CoordinatorState::Condemn(Failure failure) {
  if (!Live()) return;
  Persist(EpochCondemned{CurrentEpochNumber(), failure, wall_ns_, epoch_->last_step});
  const bool alone = epoch_->ranks.size() == 1;
  Say(Announce::Level::kWarning,
      absl::StrCat(failure.reason, alone ? "" : "; the other workers are stopped"));
  BecomeDraining(std::move(failure), spec_.grace);
}

void CoordinatorState::BecomeDraining(std::optional<Failure> failure, Duration grace) {
  phase_ = Draining{std::move(failure), now_ + grace + spec_.lease};
  for (const Node* node : members_.HoldingWorkers()) StopOn(*node, grace);
  TryEndDraining();
}

void CoordinatorState::StopOn(const Node& node, Duration grace) {
  if (node.connected) Do(StopWorkers{node.name, node.shim_epoch, grace});
}

void CoordinatorState::TryEndDraining() {
  if (!members_.HoldingWorkers().empty()) return;
  auto& draining = std::get<Draining>(phase_);
  if (stop_) return FinishStopped();
  Failure failure = *std::move(draining.failure);
  // Now all ends are known, and the first one told need not be the one that caused the others.
  std::optional<Failure> judged;
  if (failure.rank >= 0) judged = JudgeExits(epoch_->Evidence());
  if (judged && judged->rank != failure.rank) {
    Say(Announce::Level::kWarning, absl::StrCat("the cause was another: ", judged->reason));
    failure = *std::move(judged);
    PersistWithNext(EpochCondemned{CurrentEpochNumber(), failure, wall_ns_, epoch_->last_step});
  }
  RestartOrFail(std::move(failure));
}

EpochEnd CoordinatorState::EndOf(const Failure& failure) const {
  EpochEnd end;
  end.at = now_;
  end.failure_class = failure.failure_class;
  end.resume_step = epoch_->baseline;
  end.last_step = epoch_->last_step;
  end.ran = now_ - epoch_->since;
  end.found_damage = epoch_->found_damage;
  return end;
}

void CoordinatorState::RestartOrFail(Failure failure) {
  const RestartDecision decision = policy_.Decide(spec_, EndOf(failure));
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
  const bool save =
      asked.checkpoint && !asked.now && Live() && !repeated && !spec_.checkpoint_folder.empty();
  if (!repeated) {
    stop_ = StopWish{asked.by, save};
    Persist(Stopping{asked.by, save});
    Say(Announce::Level::kInfo, absl::StrCat("stopping: ", asked.by));
    if (asked.checkpoint && !save) {
      Say(Announce::Level::kWarning,
          "nothing can be saved: no worker with a checkpoint folder runs");
    }
  }
  if (In<Forming>()) return FinishStopped();
  if (In<Draining>()) {
    // The workers have their grace already; asking again, or for now, ends it.
    if (!repeated && !asked.now) return;
    for (const Node* node : members_.HoldingWorkers()) StopOn(*node, Duration(0));
    return;
  }
  if (save) {
    for (const Node* node : members_.HoldingWorkers()) AskCheckpoint(*node);
    return;
  }
  if (repeated && asked.checkpoint && !asked.now) return;  // it is being saved
  stop_->checkpoint = false;
  if (repeated) Persist(Stopping{stop_->reason, false});
  BecomeDraining(std::nullopt, asked.now ? Duration(0) : spec_.grace);
}

void CoordinatorState::FinishStopped() {
  const bool saved = stop_->checkpoint && Live();
  std::string reason = stop_->reason;
  if (saved && ledger_.recovery_point() >= Step(0)) {
    absl::StrAppend(&reason, "; ", StepWord(ledger_.recovery_point()), " is saved");
  }
  Finish({Outcome::Kind::kStopped, saved ? 0 : kFailedStatus, std::move(reason), std::nullopt});
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
