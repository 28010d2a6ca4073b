#include "launcher/coordinator/coordinator.h"

#include <algorithm>
#include <type_traits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "launcher/coordinator/coordinator_state.h"
#include "runtime/base/check.h"

namespace trainctl {
namespace {

// A coordinator that just started gives its front end this long to attach, whatever the orphan
// time-out.
constexpr Duration kAttachTime = seconds(10);

}  // namespace

Coordinator::Coordinator(JobSpec spec)
    : state_(std::make_unique<CoordinatorState>(std::move(spec))) {}
Coordinator::~Coordinator() = default;
Coordinator::Coordinator(Coordinator&&) noexcept = default;

Coordinator Coordinator::Replay(JobSpec spec, const std::vector<JournalRecord>& records) {
  Coordinator coordinator(std::move(spec));
  coordinator.state_->Replay(records);
  return coordinator;
}

void Coordinator::Start(Instant now, int64_t wall_ns, Term term, Batch* batch) {
  state_->Start(now, wall_ns, term, batch);
}
void Coordinator::Step(Instant now, int64_t wall_ns, const Event& event, Batch* batch) {
  state_->Handle(now, wall_ns, event, batch);
}
Instant Coordinator::next_deadline() const { return state_->NextDeadline(); }
std::string Coordinator::Explain(Instant now) const { return state_->Explain(now); }
JobView Coordinator::View(Instant now) const { return state_->View(now); }
Epoch Coordinator::epoch() const { return state_->epoch(); }
JobPhase Coordinator::phase() const { return state_->phase(); }
int64_t Coordinator::dropped_messages() const { return state_->dropped(); }

CoordinatorState::CoordinatorState(JobSpec job_spec)
    : spec_(std::move(job_spec)), members_(spec_.lease), ledger_(spec_.checkpoint_keep) {}

// ---- Replay and start

void CoordinatorState::Replay(const std::vector<JournalRecord>& records) {
  for (const JournalRecord& record : records) {
    replayed_ = true;
    if (const auto* r = std::get_if<EpochFormed>(&record)) ReplayOne(*r);
    if (const auto* r = std::get_if<EpochCondemned>(&record)) ReplayOne(*r);
    if (const auto* r = std::get_if<CheckpointDropped>(&record)) ReplayOne(*r);
    if (const auto* r = std::get_if<CheckpointCommitted>(&record)) {
      ledger_.RememberCommitted(r->step);
    }
    if (const auto* r = std::get_if<Stopping>(&record)) {
      stop_ = StopWish{r->reason, r->checkpoint};
      if (Live() && !r->checkpoint) phase_ = Draining{};
    }
    if (const auto* r = std::get_if<Finished>(&record)) phase_ = Ended{r->outcome};
  }
}

// Instants of a replay are wall-clock nanoseconds until ResumeAfterReplay moves them: no other
// clock outlives the machine. A wall clock that was set makes the restart window longer or shorter,
// and nothing else.
void CoordinatorState::ReplayOne(const EpochFormed& record) {
  const auto* draining = std::get_if<Draining>(&phase_);
  if (draining && draining->failure) policy_.Remember(EndOf(*draining->failure));
  epoch_.emplace();
  epoch_->formed = record;
  epoch_->ranks = RanksOf(record);
  epoch_->since = Instant{record.wall_ns};
  epoch_->baseline = record.resume_step;
  epoch_->last_step = std::max(record.resume_step, trainctl::Step(0));
  if (record.resume_step >= trainctl::Step(0)) ledger_.RememberCommitted(record.resume_step);
  phase_ = Starting{};
}

void CoordinatorState::ReplayOne(const EpochCondemned& record) {
  if (!epoch_) return;
  epoch_->last_step = record.last_step;
  now_ = Instant{record.wall_ns};
  phase_ = Draining{record.failure, Instant{}};
}

void CoordinatorState::ReplayOne(const CheckpointDropped& record) {
  if (!record.damaged) return ledger_.RememberDeleted(record.step);
  if (epoch_) FoundDamaged(record.step);
}

void CoordinatorState::Start(Instant now, int64_t wall_ns, Term term, Batch* batch) {
  now_ = now;
  wall_ns_ = wall_ns;
  batch_ = batch;
  term_ = term;
  PersistWithNext(TermStarted{term});
  if (spec_.orphan_timeout >= Duration(0)) {
    orphaned_at_ = now_ + std::max(spec_.orphan_timeout, kAttachTime);
  }
  if (replayed_) {
    ResumeAfterReplay();
  } else {
    BecomeForming("the job was submitted", Duration(0));
  }
  batch_ = nullptr;
}

void CoordinatorState::ResumeAfterReplay() {
  const Duration offset(now_.ns - wall_ns_);
  policy_.Shift(offset, now_);
  if (epoch_) epoch_->since = std::min(epoch_->since + offset, now_);
  if (const auto* ended = std::get_if<Ended>(&phase_)) {
    const Outcome outcome = ended->outcome;
    Do(FinishJob{outcome});  // a finished job is never run again, but its report may be missing
    return;
  }
  // A shim may have heard of this term before the next record, so it must not be used again.
  for (JournalRecord& record : deferred_) batch_->persist.push_back(std::move(record));
  deferred_.clear();
  if (!epoch_) return BecomeForming("the job was submitted", Duration(0));
  Say(Announce::Level::kInfo,
      absl::StrCat("the coordinator restarted from its journal (term ", term_.value, ", epoch ",
                   CurrentEpochNumber().value, ")"));
  members_.ExpectEpoch(epoch_->ranks, now_);
  if (auto* draining = std::get_if<Draining>(&phase_)) {
    draining->patience = now_ + spec_.grace + spec_.lease;
  } else {
    OpenEpochStore();  // the shims publish again what their workers had published
  }
}

// ---- The door

void CoordinatorState::Handle(Instant now, int64_t wall_ns, const Event& event, Batch* batch) {
  CHECK(now >= now_);
  now_ = now;
  wall_ns_ = wall_ns;
  batch_ = batch;
  if (Admit(event)) {
    std::visit([this](const auto& e) { On(e); }, event);
  } else {
    ++dropped_;
  }
  batch_ = nullptr;
}

// The one check of what is old: epochs here, incarnations in Membership, terms at the node.
bool CoordinatorState::Admit(const Event& event) {
  return std::visit(
      [this](const auto& e) {
        using E = std::decay_t<decltype(e)>;
        if constexpr (std::is_same_v<E, NodeJoined>) {
          // Nobody but a coordinator with a newer journal than ours can have told it more.
          return e.term <= term_ && e.epoch <= CurrentEpochNumber() && members_.Join(e);
        } else if constexpr (std::is_same_v<E, NodeLeft>) {
          return members_.Leave(e);
        } else if constexpr (std::is_same_v<E, NodeEpochGone>) {
          const Node* node = members_.Find(e.node);
          return node && node->shim_epoch == e.epoch;
        } else if constexpr (std::is_same_v<E, WorkersStarted> || std::is_same_v<E, WorkerExited>) {
          const Node* node = members_.Find(e.node);
          return node && e.epoch == CurrentEpochNumber() && node->shim_epoch == e.epoch &&
                 !In<Ended>();
        } else if constexpr (requires { e.epoch; }) {
          return e.epoch == CurrentEpochNumber() && (Live() || In<Draining>());
        } else {
          return true;
        }
      },
      event);
}

// ---- Nodes

void CoordinatorState::On(const NodeJoined& event) {
  const Node& node = *members_.Find(event.node);
  if (In<Ended>()) return Do(ReleaseNode{node.name});
  if (node.holds_workers()) return MemberIsBack(node, event.workers);
  if (!node.gone) return StopOn(node, Duration(0));  // an epoch that went on without it
  if (In<Forming>() && node.slots < spec_.workers_per_node) {
    std::string text =
        absl::StrCat("node ", node.name, " can take ", node.slots, " workers, and the job wants ",
                     spec_.workers_per_node, " on each node");
    if (spec_.max_nodes == 1) {
      constexpr int kUsageStatus = 2;
      return Finish({Outcome::Kind::kFailed, kUsageStatus, std::move(text), std::nullopt});
    }
    Say(Announce::Level::kError, absl::StrCat(text, "; it is not used"));
  }
  TryForm();
}

// A member of the current epoch tells its state: after its stream broke, or after we restarted.
void CoordinatorState::MemberIsBack(const Node& node, const std::vector<WorkerState>& workers) {
  const bool knows_epoch = node.shim_epoch == CurrentEpochNumber();
  if (In<Draining>()) {
    if (knows_epoch) TakeExits(node.name, workers);
    if (node.gone) {
      members_.MarkGone(node.name);
    } else {
      StopOn(node, stop_ || knows_epoch ? spec_.grace : Duration(0));
    }
    return TryEndDraining();
  }
  if (knows_epoch) {
    members_.MarkStarted(node.name, node.reserved_port);
    if (node.gone) members_.MarkGone(node.name);
    if (stop_ && !node.gone) AskCheckpoint(node);
    TakeExits(node.name, workers);
    TryRun();
    return JudgeEpoch();
  }
  // The order never arrived; unless something of this epoch was saved: then the node lost it.
  const bool saved = ledger_.recovery_point() > epoch_->formed.resume_step;
  if (node.part == Part::kStarting && node.gone && !saved) {
    members_.ToldToStart(node.name, CurrentEpochNumber(), now_);
    return StartOn(node);
  }
  if (node.gone) members_.MarkGone(node.name);
  Condemn(JudgeLostNode(CurrentEpochNumber(), node.name, "it came back without its workers"));
}

void CoordinatorState::On(const NodeLeft& event) {
  if (!Live() || !members_.Find(event.node)->holds_workers()) return;
  Say(Announce::Level::kWarning,
      absl::StrCat("the connection to node ", event.node, " broke (", event.reason,
                   "); its workers go on until its lease ends"));
}

void CoordinatorState::On(const LeaseRequested& event) {
  const auto* draining = std::get_if<Draining>(&phase_);
  const bool patience_over = draining && now_ >= draining->patience;
  Membership::LeaseDecision decision{false, "the job is over"};
  if (!In<Ended>()) {
    decision = members_.DecideLease(event, CurrentEpochNumber(), patience_over, now_);
  }
  if (!decision.granted) ++dropped_;
  Do(AnswerLease{event.node, event.request_id, decision.granted, spec_.lease});
}

void CoordinatorState::On(const WorkersStarted& event) {
  members_.MarkStarted(event.node, event.reserved_port);
  if (stop_ && Live()) AskCheckpoint(*members_.Find(event.node));
  TakeExits(event.node, event.workers);
  TryRun();
  JudgeEpoch();
}

void CoordinatorState::On(const WorkerExited& event) {
  TakeExit(event.node, event.rank, event.exit);
  JudgeEpoch();
}

void CoordinatorState::TakeExits(const std::string& node, const std::vector<WorkerState>& workers) {
  for (const WorkerState& worker : workers) {
    if (!worker.running) TakeExit(node, worker.rank, worker.exit);
  }
}

// Told once or more often, an end counts once; one that is not that node's is nobody's.
void CoordinatorState::TakeExit(const std::string& node, int rank, const WorkerExit& exit) {
  const std::vector<RankPlace>& ranks = epoch_->ranks;
  std::vector<RankExit>& exits = epoch_->exits;
  const bool placed = std::any_of(ranks.begin(), ranks.end(), [&](const RankPlace& place) {
    return place.rank == rank && place.node == node;
  });
  const bool known =
      std::any_of(exits.begin(), exits.end(), [&](const RankExit& e) { return e.rank == rank; });
  if (placed && !known) exits.push_back({rank, node, exit});
}

void CoordinatorState::On(const NodeEpochGone& event) {
  members_.MarkGone(event.node);
  if (Live() && event.epoch == CurrentEpochNumber()) {
    WorkerExit untold;
    untold.kind = WorkerExit::Kind::kLost;
    for (const RankPlace& place : epoch_->ranks) {
      if (place.node == event.node) TakeExit(event.node, place.rank, untold);
    }
    return JudgeEpoch();
  }
  if (In<Draining>()) TryEndDraining();
  if (In<Forming>()) TryForm();
}

// ---- Steps and checkpoints

void CoordinatorState::On(const StepReached& event) {
  epoch_->last_step = std::max(epoch_->last_step, event.step);
  if (event.total > trainctl::Step(0)) epoch_->total_steps = event.total;
}

void CoordinatorState::On(const ShardPrepared& event) {
  if (!Live()) return;  // a condemned epoch commits nothing new
  const auto& ranks = epoch_->ranks;
  auto grant = ledger_.Prepared(event.step, event.shard, static_cast<int>(ranks.size()));
  if (!grant) return;
  Persist(CommitGranted{event.epoch, event.step});
  Do(GrantCommit{ranks.front().node, event.epoch, event.step, std::move(grant->shards),
                 std::move(grant->may_delete)});
}

void CoordinatorState::On(const CheckpointPublished& event) {
  Persist(CheckpointCommitted{event.epoch, event.step});
  for (const trainctl::Step old : ledger_.Committed(event.step)) {
    Persist(CheckpointDropped{old, false, "older than the newest that are kept"});
  }
}

void CoordinatorState::On(const CheckpointRejected& event) {
  FoundDamaged(event.step);
  Persist(CheckpointDropped{event.step, true, event.reason});
  Say(Announce::Level::kWarning, absl::StrCat("checkpoint of step ", event.step.value,
                                              " is damaged and not used: ", event.reason));
}

// Workers find damage while they load, before their first step, and fall back.
void CoordinatorState::FoundDamaged(trainctl::Step step) {
  ledger_.Damaged(step);
  epoch_->found_damage = true;
  epoch_->baseline = ledger_.recovery_point();
  epoch_->last_step = std::max(epoch_->baseline, trainctl::Step(0));
}

void CoordinatorState::On(const AddressesReached&) {}
void CoordinatorState::On(const DrainAsked&) {}

void CoordinatorState::On(const CheckpointsFound& event) {
  auto* forming = std::get_if<Forming>(&phase_);
  if (!forming) return;  // the answer to a question of a phase that is over
  ledger_.Found(event.steps);
  forming->folder_read = true;
  TryForm();
}

// ---- People and time

void CoordinatorState::On(const StopAsked& event) { Stop(event); }

void CoordinatorState::On(const FrontEndsChanged& event) {
  front_ends_ = event.count;
  orphaned_at_ = kNever;
  if (front_ends_ > 0 || spec_.orphan_timeout < Duration(0)) return;
  orphaned_at_ = now_ + spec_.orphan_timeout;
  if (orphaned_at_ <= now_) StopForOrphans();
}

void CoordinatorState::StopForOrphans() {
  orphaned_at_ = kNever;
  if (stop_) return;  // it keeps the grace, or the checkpoint, that was asked for
  std::string reason = "no front end is attached";
  if (spec_.orphan_timeout > Duration(0)) {
    absl::StrAppend(&reason, " since ", ToSeconds(spec_.orphan_timeout), " s");
  }
  Stop({std::move(reason), false, false});
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

void CoordinatorState::On(const DeadlineReached&) {
  if (In<Ended>()) return;
  for (const std::string& name : members_.EndLeases(now_)) {
    const Node& node = *members_.Find(name);
    const std::string why = WhyLost(node);
    StopOn(node, Duration(0));
    if (Live()) {
      Condemn(JudgeLostNode(CurrentEpochNumber(), name, why));
    } else {
      Say(Announce::Level::kWarning, absl::StrCat("node ", name, " was lost: ", why));
    }
  }
  if (orphaned_at_ <= now_) StopForOrphans();
  if (In<Draining>()) TryEndDraining();
  if (In<Forming>()) TryForm();
}

Instant CoordinatorState::NextDeadline() const {
  if (In<Ended>()) return kNever;
  Instant next = std::min(orphaned_at_, members_.next_lease_end());
  if (const auto* forming = std::get_if<Forming>(&phase_)) {
    next = std::min(next, forming->give_up);
    if (forming->last_call != kNever) next = std::min(next, forming->last_call);
    if (forming->not_before > now_) next = std::min(next, forming->not_before);
  }
  return next;
}

}  // namespace trainctl
