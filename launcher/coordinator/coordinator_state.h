// Inside of the coordinator; only its own .cc files include this.
//   coordinator.cc  the door: which event reaches which phase, and what is fenced off
//   replay.cc       what an earlier life left behind
//   nodes.cc        nodes that join, leave, ask and are drained
//   forming.cc      who takes part in the next epoch, and where it meets
//   gpu_faults.cc   errors that GPUs tell of
//   hangs.cc        workers that make no progress, processes that cannot be ended
//   phases.cc       entering and leaving the other phases
//   explain.cc      what people are told
#ifndef TRAINCTL_LAUNCHER_COORDINATOR_COORDINATOR_STATE_H_
#define TRAINCTL_LAUNCHER_COORDINATOR_COORDINATOR_STATE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "launcher/coordinator/action.h"
#include "launcher/coordinator/checkpoint_ledger.h"
#include "launcher/coordinator/connect_back.h"
#include "launcher/coordinator/coordinator.h"
#include "launcher/coordinator/event.h"
#include "launcher/coordinator/hang_verdict.h"
#include "launcher/coordinator/journal_record.h"
#include "launcher/coordinator/membership.h"
#include "launcher/coordinator/rank_plan.h"
#include "launcher/coordinator/restart_policy.h"
#include "launcher/coordinator/spec.h"
#include "launcher/coordinator/verdict.h"
#include "launcher/coordinator/worker_env.h"

namespace trainctl {

// The members were chosen, and it is found out where they can meet.
struct Meeting {
  RankPlan plan;
  ConnectBack connect_back;
};

struct Forming {
  std::string reason;  // why a new epoch is needed
  Instant since;
  Instant give_up;
  Instant not_before;          // back-off
  Instant last_call = kNever;  // enough nodes are here; more are waited for until then
  Instant next_word;           // when people are told again what is waited for
  bool folder_read = false;    // the checkpoint folder said what it holds, or there is none
  std::optional<Meeting> meeting;
  std::string trouble;  // why the last meeting did not take place
  Instant retry_at;     // after trouble
};
struct Starting {};
struct Running {};
struct Draining {
  std::optional<Failure> failure;  // as judged so far; none: the job is to stop, or to change nodes
  Instant patience;                // leases are no longer renewed after this
  std::string replaced;            // why its nodes are to change
  // They were told to say where they are before they end, and their ends do not tell the cause.
  bool hung = false;
  Instant since = {};
  // A node that was not heard from since before, or came back without its workers: the cause, if
  // all that is known of the failure is that somebody lost a peer.
  std::optional<Failure> lost = {};
};
struct Ended {
  Outcome outcome;
};
// In the order of JobPhase.
using Phase = std::variant<Forming, Starting, Running, Draining, Ended>;

// Somebody makes no progress, and all nodes are asked what their workers are at.
struct HangInquiry {
  HangSuspicion suspicion;
  Instant until;
  std::set<std::string> waiting;  // nodes that have not answered
  std::vector<RankEvidence> evidence;
};

// One life of the workers.
struct CurrentEpoch {
  explicit CurrentEpoch(EpochFormed epoch);

  EpochFormed formed;
  Instant since;
  bool started = false;         // EpochStarted is in the journal
  bool started_before = false;  // since an earlier term
  std::vector<bool> told;       // by rank: its end is known
  size_t ended = 0;
  size_t done = 0;                 // of them, with code 0 and by themselves
  std::vector<RankExit> failures;  // of them, the others, in the order in which they were told
  trainctl::Step baseline{-1};     // the recovery point its workers really start from
  trainctl::Step last_step;
  trainctl::Step total_steps;
  bool found_damage = false;
  std::set<trainctl::Step> rejected;  // by its workers, as they loaded
  std::set<std::string> lost;         // nodes, in an earlier term
  std::optional<HangInquiry> inquiry;
  std::vector<GpuFaulted> gpu_faults;      // each once
  bool save_asked = false;                 // by us, to be able to change its nodes
  std::unique_ptr<WorkerPlanner> planner;  // made when first needed

  size_t world_size() const { return told.size(); }
  bool stepped() const;  // beyond the recovery point
  EpochEvidence Evidence(const JobSpec& spec) const;
};

std::string Workers(size_t count);  // "1 worker", "2 workers"
std::string StepWord(Step step);    // "step 7", "the beginning"

struct StopWish {
  std::string reason;
  bool checkpoint = false;
  bool preempted = false;
  // Workers that are to save first get SIGTERM then, and what is left of the time until `over`.
  Instant until = kNever;
  Instant over = kNever;
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
  Epoch epoch() const { return epoch_ ? epoch_->formed.epoch : Epoch(-1); }
  JobPhase phase() const { return static_cast<JobPhase>(phase_.index()); }
  int64_t dropped() const { return dropped_; }

 private:
  // coordinator.cc
  bool Admit(const Event& event);
  void On(const StepReached& event);
  void On(const ShardPrepared& event);
  void On(const CheckpointPublished& event);
  void On(const CheckpointRejected& event);
  void On(const CheckpointsFound& event);
  void On(const StopAsked& event);
  void On(const FrontEndsChanged& event);
  void On(const DeadlineReached& event);
  void FoundDamaged(trainctl::Step step);
  void StopForOrphans();

  // replay.cc
  void ReplayOne(const TermStarted&) {}
  void ReplayOne(const EpochFormed& record);
  void ReplayOne(const EpochStarted& record);
  void ReplayOne(const EpochCondemned& record);
  void ReplayOne(const EpochReplaced& record);
  void ReplayOne(const CommitGranted&) {}
  void ReplayOne(const CheckpointCommitted& record);
  void ReplayOne(const CheckpointDropped& record);
  void ReplayOne(const NodeDrained& record);
  void ReplayOne(const Stopping& record);
  void ReplayOne(const Finished& record);
  void ReplayOne(const NodeLost& record);
  void ResumeAfterReplay();

  // nodes.cc
  void On(const NodeJoined& event);
  void On(const NodeLeft& event);
  void On(const LeaseRequested& event);
  void On(const WorkersStarted& event);
  void On(const WorkerExited& event);
  void On(const NodeEpochGone& event);
  void On(const AddressesReached& event);
  void On(const DrainAsked& event);
  void Refuse(const NodeJoined& event, const std::string& reason);
  void RefuseSurplus(const Node& node);
  void MemberIsBack(const Node& node, const std::vector<WorkerState>& workers);
  void TakeExits(const Node& node, const std::vector<WorkerState>& workers);
  void TakeExit(const Node& node, int rank, const WorkerExit& exit);
  void TakeUntold(const Node& node);
  void RecordStart();
  std::string WhyLost(const Node& node) const;
  void EndLeases();
  // Why the nodes of the running epoch should change; empty: they should not.
  std::string WishForOtherNodes() const;
  void AskForRecoveryPoint();  // if somebody waits for one
  void ChangeNodesIfWished();

  // gpu_faults.cc
  void On(const GpuFaulted& event);
  Failure WithGpuFaults(Failure failure) const;

  // hangs.cc
  void On(const HangSuspected& event);
  void On(const WorkersDiagnosed& event);
  void On(const NodeUnfit& event);
  void EndInquiry();

  // forming.cc
  void BecomeForming(std::string reason, Duration delay);
  void TryForm();
  bool WorthWaiting(Forming& forming);
  Instant MembersMayBeBackUntil() const;
  void AvoidFailingNodes();
  std::vector<const Node*> ChooseNodes(size_t most) const;
  RankPlan PlanOf(const std::vector<const Node*>& nodes) const;
  bool Verified(const RankPlan& plan) const;
  void Meet(RankPlan plan);
  void TryMeet();
  void CallOffMeeting(const std::string& node);
  void MeetingFailed(const ConnectBack::Outcome& outcome);
  EpochFormed FormedBy(const RankPlan& plan) const;
  std::string Absence(const RankPlan& plan) const;
  void TellWhatIsWaitedFor();

  // phases.cc
  void BecomeStarting(const RankPlan& plan);
  void TryRun();
  void JudgeEpoch();  // after new exits: goes on, condemns or ends the job
  void Condemn(Failure failure, bool hung = false);
  void Replace(std::string reason);
  void BecomeDraining(Draining draining, Duration grace);
  void TryEndDraining();
  void RestartOrFail(Failure failure);
  void Stop(const StopAsked& asked);
  void LimitSaving();
  void EndSaving();
  void Succeed();
  void FinishStopped();
  void Finish(Outcome outcome);
  void AskCheckpoint(const Node& node, bool then_stop);
  void StopOn(const Node& node, Duration grace, bool abort = false);
  void OpenEpochStore();
  void StartOn(const Node& node);
  EpochEnd EndOf(const Failure& failure) const;

  // explain.cc
  std::string ExplainForming(const Forming& forming, Instant now) const;
  std::string ExplainStarting(Instant now) const;
  std::string ExplainRunning(Instant now) const;
  std::string MissingNodes(const Forming& forming, Instant now) const;
  NodeView ViewOf(const Node& node) const;

  template <typename P>
  bool In() const {
    return std::holds_alternative<P>(phase_);
  }
  bool Live() const { return In<Starting>() || In<Running>(); }
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
  uint64_t next_probe_ = 1;
  std::set<std::string> refusals_;  // what was said already
  // Records that explain but decide nothing: they travel with the next record that must be durable.
  std::vector<JournalRecord> deferred_;

  // Of the call in progress.
  Instant now_;
  int64_t wall_ns_ = 0;
  Batch* batch_ = nullptr;
};

}  // namespace trainctl

#endif  // TRAINCTL_LAUNCHER_COORDINATOR_COORDINATOR_STATE_H_
