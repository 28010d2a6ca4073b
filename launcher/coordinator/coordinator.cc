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
    : spec_(std::move(job_spec)), members_(spec_), ledger_(spec_.checkpoint_keep) {}

void CoordinatorState::Persist(JournalRecord record) {
  for (JournalRecord& earlier : deferred_) batch_->persist.push_back(std::move(earlier));
  deferred_.clear();
  batch_->persist.push_back(std::move(record));
}

void CoordinatorState::Start(Instant now, int64_t wall_ns, Term term, Batch* batch) {
  now_ = now;
  wall_ns_ = wall_ns;
  batch_ = batch;
  term_ = term;
  members_.AdvanceTo(now);
  // An answer to a probe of an earlier term is an answer to nothing.
  next_probe_ = (static_cast<uint64_t>(term.value) << 32) + 1;
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

// ---- The door

void CoordinatorState::Handle(Instant now, int64_t wall_ns, const Event& event, Batch* batch) {
  CHECK(now >= now_);
  now_ = now;
  wall_ns_ = wall_ns;
  batch_ = batch;
  members_.AdvanceTo(now);
  if (Admit(event)) {
    std::visit([this](const auto& e) { On(e); }, event);
  } else {
    ++dropped_;
  }
  TryMeet();
  TryForm();
  TellWhatIsWaitedFor();
  batch_ = nullptr;
}

// The one check of what is old: epochs here, incarnations in Membership, terms at the node.
bool CoordinatorState::Admit(const Event& event) {
  return std::visit(
      [this](const auto& e) {
        using E = std::decay_t<decltype(e)>;
        if constexpr (std::is_same_v<E, NodeJoined>) {
          // Nobody but a coordinator with a newer journal than ours can have told it more.
          return e.term <= term_ && e.epoch <= epoch();
        } else if constexpr (std::is_same_v<E, NodeLeft>) {
          return members_.Leave(e);
        } else if constexpr (std::is_same_v<E, NodeEpochGone>) {
          const Node* node = members_.Find(e.node);
          return node && node->shim_epoch == e.epoch;
        } else if constexpr (std::is_same_v<E, WorkersStarted> || std::is_same_v<E, WorkerExited>) {
          const Node* node = members_.Find(e.node);
          return node && e.epoch == epoch() && node->shim_epoch == e.epoch && node->seat >= 0 &&
                 !In<Ended>();
        } else if constexpr (requires { e.epoch; }) {
          return e.epoch == epoch() && (Live() || In<Draining>());
        } else {
          return true;
        }
      },
      event);
}

// ---- Steps and checkpoints

void CoordinatorState::On(const StepReached& event) {
  epoch_->last_step = std::max(epoch_->last_step, event.step);
  if (event.total > trainctl::Step(0)) epoch_->total_steps = event.total;
}

void CoordinatorState::On(const ShardPrepared& event) {
  if (!Live()) return;                    // a condemned epoch commits nothing new
  if (stop_) stop_->until = stop_->over;  // they are at it
  auto grant = ledger_.Prepared(event.step, event.shard, epoch_->formed.world_size());
  if (!grant) return;
  Persist(CommitGranted{event.epoch, event.step});
  Do(GrantCommit{epoch_->formed.nodes.front().node, event.epoch, event.step,
                 std::move(grant->shards), std::move(grant->may_delete)});
}

void CoordinatorState::On(const CheckpointPublished& event) {
  Persist(CheckpointCommitted{event.epoch, event.step});
  for (const trainctl::Step old : ledger_.Committed(event.step)) {
    Persist(CheckpointDropped{old, false, "older than the newest that are kept"});
  }
  epoch_->save_asked = false;
  ChangeNodesIfWished();
}

// Nodes that join again tell it again, when the step may long be written anew.
void CoordinatorState::On(const CheckpointRejected& event) {
  if (epoch_->rejected.contains(event.step)) return;
  FoundDamaged(event.step);
  Persist(CheckpointDropped{event.step, true, event.reason});
  Say(Announce::Level::kWarning, absl::StrCat("checkpoint of step ", event.step.value,
                                              " is damaged and not used: ", event.reason));
}

// Workers find damage while they load, before their first step, and fall back.
void CoordinatorState::FoundDamaged(trainctl::Step step) {
  ledger_.Damaged(step);
  epoch_->rejected.insert(step);
  epoch_->found_damage = true;
  epoch_->baseline = ledger_.recovery_point();
  epoch_->last_step = std::max(epoch_->baseline, trainctl::Step(0));
}

void CoordinatorState::On(const CheckpointsFound& event) {
  auto* forming = std::get_if<Forming>(&phase_);
  if (!forming) return;  // the answer to a question of a phase that is over
  ledger_.Found(event.steps);
  forming->folder_read = true;
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

void CoordinatorState::On(const DeadlineReached&) {
  if (In<Ended>()) return;
  EndLeases();
  if (Live() && epoch_->inquiry && epoch_->inquiry->until <= now_) EndInquiry();
  if (orphaned_at_ <= now_) StopForOrphans();
  if (Live() && stop_ && stop_->until <= now_) EndSaving();
  if (In<Draining>()) TryEndDraining();
}

Instant CoordinatorState::NextDeadline() const {
  if (In<Ended>()) return kNever;
  Instant next = std::min(orphaned_at_, members_.next_lease_end());
  if (Live() && epoch_->inquiry) next = std::min(next, epoch_->inquiry->until);
  if (Live() && stop_) next = std::min(next, stop_->until);
  if (const auto* forming = std::get_if<Forming>(&phase_)) {
    next = std::min(next, forming->next_word);
    if (forming->meeting) return std::min(next, forming->meeting->connect_back.deadline());
    next = std::min(next, forming->give_up);
    // What lies in the past was acted upon by the event that saw it pass.
    for (const Instant at : {forming->last_call, forming->not_before, forming->retry_at}) {
      if (at > now_) next = std::min(next, at);
    }
  }
  return next;
}

}  // namespace trainctl
