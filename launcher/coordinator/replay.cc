#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "launcher/coordinator/coordinator_state.h"

namespace trainctl {

void CoordinatorState::Replay(const std::vector<JournalRecord>& records) {
  for (const JournalRecord& record : records) {
    replayed_ = true;
    std::visit([this](const auto& r) { ReplayOne(r); }, record);
  }
}

// Instants of a replay are wall-clock nanoseconds until ResumeAfterReplay moves them: no other
// clock outlives the machine. A wall clock that was set makes the restart window longer or shorter,
// and nothing else.
void CoordinatorState::ReplayOne(const EpochFormed& record) {
  const auto* draining = std::get_if<Draining>(&phase_);
  if (draining && draining->failure) policy_.Remember(EndOf(*draining->failure));
  epoch_.emplace(record);
  epoch_->since = Instant{record.wall_ns};
  ledger_.RememberRecoveryPoint(record.resume_step);
  phase_ = Starting{};
}

void CoordinatorState::ReplayOne(const EpochStarted& record) {
  if (epoch() == record.epoch) epoch_->started = epoch_->started_before = true;
}

void CoordinatorState::ReplayOne(const EpochCondemned& record) {
  if (!epoch_) return;
  epoch_->last_step = record.last_step;
  now_ = Instant{record.wall_ns};
  phase_ = Draining{record.failure, Instant{}, ""};
}

void CoordinatorState::ReplayOne(const EpochReplaced& record) {
  if (!epoch_) return;
  epoch_->last_step = record.last_step;
  phase_ = Draining{std::nullopt, Instant{}, record.reason};
}

void CoordinatorState::ReplayOne(const CheckpointCommitted& record) {
  ledger_.RememberCommitted(record.step);
}

void CoordinatorState::ReplayOne(const CheckpointDropped& record) {
  if (!record.damaged) return ledger_.RememberDeleted(record.step);
  if (epoch_) FoundDamaged(record.step);
}

void CoordinatorState::ReplayOne(const NodeDrained& record) {
  members_.MarkDrained(record.node, record.drained);
  if (!record.drained) policy_.Forgive(record.node);
}

void CoordinatorState::ReplayOne(const Stopping& record) {
  stop_ = StopWish{record.reason, record.checkpoint, record.preempted};
  if (Live() && !record.checkpoint) phase_ = Draining{};
}

void CoordinatorState::ReplayOne(const Finished& record) { phase_ = Ended{record.outcome}; }

void CoordinatorState::ReplayOne(const NodeLost& record) {
  if (epoch_ && record.epoch == epoch()) epoch_->lost.insert(record.node);
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
  Say(Announce::Level::kInfo, absl::StrCat("the coordinator restarted from its journal (term ",
                                           term_.value, ", epoch ", epoch().value, ")"));
  members_.ExpectEpoch(epoch_->formed, epoch_->lost);
  if (auto* draining = std::get_if<Draining>(&phase_)) {
    draining->since = now_;
    draining->patience = now_ + spec_.grace + spec_.lease;
    if (!epoch_->lost.empty()) {
      draining->lost = JudgeLostNode(epoch(), *epoch_->lost.begin(), "its lease ended");
    }
    return TryEndDraining();  // every node may be one that was lost
  }
  if (stop_) LimitSaving();
  OpenEpochStore();  // the shims publish again what their workers had published
  // The journal was torn between the loss and what follows from it.
  if (!epoch_->lost.empty()) {
    Condemn(JudgeLostNode(epoch(), *epoch_->lost.begin(), "its lease ended"));
  }
}

}  // namespace trainctl
