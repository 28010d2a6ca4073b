// Inside of the coordinator; only its own .cc files include this.
//   coordinator.cc  the door: which event reaches which phase, and what is fenced off
//   phases.cc       entering and leaving the phases
//   explain.cc      what people are told
#ifndef TRAINCTL_LAUNCHER_COORDINATOR_COORDINATOR_STATE_H_
#define TRAINCTL_LAUNCHER_COORDINATOR_COORDINATOR_STATE_H_

#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "launcher/coordinator/action.h"
#include "launcher/coordinator/checkpoint_ledger.h"
#include "launcher/coordinator/coordinator.h"
#include "launcher/coordinator/event.h"
#include "launcher/coordinator/journal_record.h"
#include "launcher/coordinator/membership.h"
#include "launcher/coordinator/restart_policy.h"
#include "launcher/coordinator/spec.h"
#include "launcher/coordinator/verdict.h"

namespace trainctl {

struct Forming {
  std::string reason;  // why a new epoch is needed
  Instant give_up;
  Instant not_before;          // back-off
  Instant last_call = kNever;  // enough nodes are here; more are waited for until then
  bool folder_read = false;    // the checkpoint folder has answered, or there is none
};
struct Starting {};
struct Running {};
struct Draining {
  std::optional<Failure> failure;  // as judged so far; none: the job is to stop
  Instant patience;                // leases are no longer renewed after this
};
struct Ended {
  Outcome outcome;
};
// In the order of JobPhase.
using Phase = std::variant<Forming, Starting, Running, Draining, Ended>;

// One life of the workers.
struct CurrentEpoch {
  EpochFormed formed;
  std::vector<RankPlace> ranks;
  Instant since;
  std::vector<RankExit> exits;
  trainctl::Step baseline{-1};  // the recovery point its workers really start from
  trainctl::Step last_step;
  trainctl::Step total_steps;
  bool found_damage = false;

  EpochEvidence Evidence() const;
};

std::string Workers(size_t count);  // "1 worker", "2 workers"

struct StopWish {
  std::string reason;
  bool checkpoint = false;
};

class CoordinatorState {
 public:
  explicit CoordinatorState(JobSpec job_spec);

  void Replay(const std::vector<JournalRecord>& records);
  void Start(Instant now, int64_t wall_ns, Term term, Batch* batch);
  void Handle(Instant now, int64_t wall_ns, const Event& event, Batch* batch);
  Instant NextDeadline() const;
  std::string Explain(Instant now) const;
  JobView View(Instant now) const;
  Epoch epoch() const { return CurrentEpochNumber(); }
  JobPhase phase() const { return static_cast<JobPhase>(phase_.index()); }
  int64_t dropped() const { return dropped_; }

 private:
  // coordinator.cc
  bool Admit(const Event& event);
  void On(const NodeJoined& event);
  void On(const NodeLeft& event);
  void On(const LeaseRequested& event);
  void On(const WorkersStarted& event);
  void On(const WorkerExited& event);
  void On(const NodeEpochGone& event);
  void On(const StepReached& event);
  void On(const ShardPrepared& event);
  void On(const CheckpointPublished& event);
  void On(const CheckpointRejected& event);
  void On(const AddressesReached& event);
  void On(const CheckpointsFound& event);
  void On(const StopAsked& event);
  void On(const DrainAsked& event);
  void On(const FrontEndsChanged& event);
  void On(const DeadlineReached& event);
  void ReplayOne(const EpochFormed& record);
  void ReplayOne(const EpochCondemned& record);
  void ReplayOne(const CheckpointDropped& record);
  void ResumeAfterReplay();
  void MemberIsBack(const Node& node, const std::vector<WorkerState>& workers);
  void TakeExits(const std::string& node, const std::vector<WorkerState>& workers);
  void TakeExit(const std::string& node, int rank, const WorkerExit& exit);
  void FoundDamaged(trainctl::Step step);
  void StopForOrphans();
  std::string WhyLost(const Node& node) const;

  // phases.cc
  void BecomeForming(std::string reason, Duration delay);
  void TryForm();
  void BecomeStarting(const std::vector<NodePlace>& nodes);
  void TryRun();
  void JudgeEpoch();  // after new exits: goes on, condemns or ends the job
  void Condemn(Failure failure);
  void BecomeDraining(std::optional<Failure> failure, Duration grace);
  void TryEndDraining();
  void RestartOrFail(Failure failure);
  void Stop(const StopAsked& asked);
  void Fail(Failure failure, std::string reason, int exit_status);
  void FinishStopped();
  void Finish(Outcome outcome);
  void AskCheckpoint(const Node& node);
  void StopOn(const Node& node, Duration grace);
  void OpenEpochStore();
  void StartOn(const Node& node);
  std::string MissingNodes() const;
  EpochEnd EndOf(const Failure& failure) const;

  template <typename P>
  bool In() const {
    return std::holds_alternative<P>(phase_);
  }
  bool Live() const { return In<Starting>() || In<Running>(); }
  Epoch CurrentEpochNumber() const { return epoch_ ? epoch_->formed.epoch : Epoch(-1); }
  void Persist(JournalRecord record);
  void PersistWithNext(JournalRecord record) { deferred_.push_back(std::move(record)); }
  void Do(Action action) { batch_->perform.push_back(std::move(action)); }
  void Say(Announce::Level level, std::string text) { Do(Announce{level, std::move(text)}); }

  const JobSpec spec_;
  Phase phase_;
  Term term_;
  Membership members_;
  RestartPolicy policy_;
  CheckpointLedger ledger_;
  std::optional<CurrentEpoch> epoch_;  // the newest; its ranks are kept for the next
  std::optional<StopWish> stop_;
  bool replayed_ = false;
  int front_ends_ = 0;
  Instant orphaned_at_ = kNever;  // when the job stops for want of a front end
  int64_t dropped_ = 0;
  // Records that explain but decide nothing: they travel with the next record that must be durable.
  std::vector<JournalRecord> deferred_;

  // Of the call in progress.
  Instant now_;
  int64_t wall_ns_ = 0;
  Batch* batch_ = nullptr;
};

}  // namespace trainctl

#endif  // TRAINCTL_LAUNCHER_COORDINATOR_COORDINATOR_STATE_H_
