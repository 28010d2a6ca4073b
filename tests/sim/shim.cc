#include "tests/sim/shim.h"

#include <algorithm>
#include <cerrno>
#include <set>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "tests/sim/node.h"
#include "tests/sim/world.h"

namespace trainctl::sim {
namespace {

constexpr Duration kShortestAbandonment = seconds(10);
constexpr Duration kKeeperPatience = milliseconds(100);

}  // namespace

Shim::Shim(World* world, Node* node)
    : world_(world),
      node_(node),
      keeper_(&world->timeline(), &node->machine()),
      supervisor_(&world->timeline(), &node->machine()) {
  keeper_.Start();
  supervisor_.Start();
  port_ = world_->random().Int(20'000, 60'000);
  ArmAbandoned();
}

// ---- The daemon

void Shim::Hello(uint32_t link, int64_t incarnation) {
  supervisor_.Deliver([this, link, incarnation] {
    if (daemon_link_ != 0 && daemon_incarnation_ > incarnation) {
      return node_->daemon().OnShimClosed(link);
    }
    daemon_link_ = link;
    daemon_incarnation_ = incarnation;
    ordered_.reset();
    supervisor_.Cancel(&abandon_timer_);
    Send(State());
    for (const frame::Frame& frame : records_.TakeForNewDaemon()) Send(frame);
    if (EpochIsLive()) SendLeaseRequest();
    if (epoch_ >= 0 && gone_) SendGone();
  });
}

void Shim::OnDaemonClosed(uint32_t link) {
  supervisor_.Deliver([this, link] {
    if (daemon_link_ != link) return;
    daemon_link_ = 0;
    ArmAbandoned();
  });
}

void Shim::Send(frame::Frame frame) {
  if (daemon_link_ != 0) node_->daemon().OnShimFrame(daemon_link_, std::move(frame));
}

void Shim::OnFrame(uint32_t link, frame::Frame frame) {
  supervisor_.Deliver([this, link, frame = std::move(frame)] {
    if (daemon_link_ != link) return;
    if (const auto* start = std::get_if<frame::StartEpoch>(&frame)) {
      OnStartEpoch(*start);
    } else if (const auto* stop = std::get_if<frame::StopEpoch>(&frame)) {
      OnStopEpoch(*stop);
    } else if (const auto* answer = std::get_if<frame::LeaseAnswer>(&frame)) {
      OnLeaseAnswer(*answer);
    } else if (const auto* request = std::get_if<frame::PageRequest>(&frame)) {
      OnPageRequest(*request);
    } else if (const auto* granted = std::get_if<frame::CommitGranted>(&frame)) {
      if (granted->epoch == epoch_ && TermIsCurrent(granted->term)) {
        node_->OnGranted(epoch_, *granted);
      }
    } else if (const auto* ask = std::get_if<frame::DiagnoseWorkers>(&frame)) {
      OnDiagnoseWorkers(*ask);
    } else if (std::holds_alternative<frame::Release>(frame)) {
      Release();
    }
  });
}

bool Shim::TermIsCurrent(int64_t term) {
  if (term < term_) return world_->broken(Mutation::kHearOldTerms);
  term_ = term;
  return true;
}

frame::ShimState Shim::State() const {
  frame::ShimState state;
  state.job_id = "job";
  state.term = term_;
  state.reserved_port = static_cast<uint16_t>(port_);
  state.epoch = epoch_;
  state.gone = gone_;
  for (const Worker& worker : workers_) {
    state.slots.push_back({worker.launch.rank, worker.launch.local_rank, worker.pid,
                           worker.slot.HasProcess(), worker.exit, worker.exit_ns, worker.says, ""});
  }
  return state;
}

void Shim::OnStartEpoch(const frame::StartEpoch& start) {
  if (!TermIsCurrent(start.term) || quitting_) return;
  if (epoch_ == start.epoch) {
    if (started_) Send(frame::EpochStarted{epoch_, static_cast<uint16_t>(port_), State().slots});
    return;
  }
  if (start.epoch < epoch_ || EpochIsLive() || start.epoch < 0) return Send(State());
  // The order may be old. Nothing is started before the coordinator says that it still holds.
  if (ordered_ && ordered_->epoch == start.epoch) return;
  ordered_ = start;
  ordered_at_ = supervisor_.Now();
  order_request_ = lease_.Request(ordered_at_);
  Send(frame::LeaseRequest{order_request_});
}

void Shim::StartOrdered() {
  const frame::StartEpoch start = *std::exchange(ordered_, std::nullopt);
  records_.Reset();
  epoch_ = start.epoch;
  workers_.clear();
  exits_.clear();
  passed_on_ = 0;
  started_ = false;
  gone_ = false;
  stopped_ = false;
  last_step_ = -1;
  supervisor_.Cancel(&grace_timer_);
  port_ = world_->random().Int(20'000, 60'000);
  lease_.Begin(ordered_at_, world_->spec().lease);
  TellKeeper();
  workers_.resize(start.workers.size());
  for (size_t i = 0; i < workers_.size(); ++i) {
    workers_[i].launch = start.workers[i];
    StartWorker(&workers_[i], i);
  }
  CheckStarted();
  SendLeaseRequest();
  AfterReaping();
}

void Shim::StartWorker(Worker* worker, size_t slot) {
  if (world_->broken(Mutation::kStartBesideOld)) {
    node_->Fork(this, Epoch(epoch_ - 1), worker->launch.rank, static_cast<int>(slot));
  }
  const int pid = node_->Fork(this, Epoch(epoch_), worker->launch.rank, static_cast<int>(slot));
  if (pid < 0) {
    worker->spawn_errno = EAGAIN;
    worker->exit_ns = supervisor_.Now().ns;
    return StepWorker(worker, SlotEvent::kForkFailed);
  }
  worker->pid = pid;
  worker->exec_pending = true;
  StepWorker(worker, SlotEvent::kForked);
}

void Shim::OnExecuted(int pid, int error) {
  supervisor_.Deliver([this, pid, error] {
    for (Worker& worker : workers_) {
      if (worker.pid != pid || !worker.exec_pending) continue;
      worker.exec_pending = false;
      worker.spawn_errno = error;
      StepWorker(&worker, error == 0 ? SlotEvent::kExecuted : SlotEvent::kExecFailed);
      return CheckStarted();
    }
  });
}

void Shim::CheckStarted() {
  const bool pending =
      std::any_of(workers_.begin(), workers_.end(), [](const Worker& w) { return w.exec_pending; });
  if (!started_ && !pending) {
    started_ = true;
    Send(frame::EpochStarted{epoch_, static_cast<uint16_t>(port_), State().slots});
  }
  while (started_ && passed_on_ < exits_.size()) Send(exits_[passed_on_++]);
}

void Shim::StepWorker(Worker* worker, SlotEvent event, Instant grace_until) {
  const SlotDecision decision = worker->slot.Step(event, grace_until);
  switch (decision.action) {
    case SlotAction::kNone:
      return;
    case SlotAction::kTerminate:
      worker->told_to_end = true;
      return node_->Terminate(worker->pid);
    case SlotAction::kKill:
      worker->told_to_end = true;
      return node_->KillWorker(worker->pid);
    case SlotAction::kReport:
      return Report(worker);
    case SlotAction::kRefuse:
      return world_->Violation(
          "slot", absl::StrCat("refused an event while ", SlotPhaseName(worker->slot.phase()), ": ",
                               decision.reason));
  }
}

void Shim::Report(Worker* worker) {
  if (worker->spawn_errno != 0) {
    worker->exit = {frame::Exit::Kind::kSpawnFailed, worker->spawn_errno, false, false,
                    "start worker"};
  }
  exits_.push_back({epoch_, worker->launch.rank, worker->exit, worker->exit_ns, worker->says, ""});
  CheckStarted();
}

void Shim::OnEnded() {
  supervisor_.Deliver([this] { Reap(); });
}

void Shim::Reap() {
  if (quitting_ && !keeper_.alive() && !supervisor_.alive()) return;
  for (Worker& worker : workers_) {
    if (!worker.slot.HasProcess()) continue;
    std::optional<OsExit> ended = node_->Reap(worker.pid);
    if (!ended) continue;
    worker.says = std::move(ended->says);
    if (worker.exec_pending) {  // what the child wrote before it ended comes first
      worker.exec_pending = false;
      worker.spawn_errno = ended->exec_error;
      StepWorker(&worker, ended->exec_error == 0 ? SlotEvent::kExecuted : SlotEvent::kExecFailed);
    }
    worker.exit_ns = supervisor_.Now().ns;
    worker.exit.kind = ended->signaled ? frame::Exit::Kind::kSignaled : frame::Exit::Kind::kExited;
    worker.exit.code = ended->code;
    worker.exit.by_us = worker.told_to_end && (!ended->signaled || ended->by_us);
    StepWorker(&worker, SlotEvent::kReaped);
  }
  CheckStarted();
  AfterReaping();
}

void Shim::AfterReaping() {
  if (gone_) return;
  const bool left = std::any_of(workers_.begin(), workers_.end(),
                                [](const Worker& w) { return w.slot.HasProcess(); });
  if (left) return;
  BecomeGone();
}

void Shim::BecomeGone() {
  gone_ = true;
  supervisor_.Cancel(&grace_timer_);
  supervisor_.Cancel(&lease_timer_);
  lease_.End();
  TellKeeper();
  SendGone();
  if (quitting_) return FinishEnd();
  if (daemon_link_ == 0) ArmAbandoned();
}

void Shim::SendGone() { Send(frame::EpochGone{epoch_}); }

void Shim::OnStopEpoch(const frame::StopEpoch& stop) {
  if (!TermIsCurrent(stop.term)) return;
  if (ordered_ && ordered_->epoch == stop.epoch) {
    ordered_.reset();
    return Send(State());
  }
  if (epoch_ != stop.epoch || epoch_ < 0) return;
  if (gone_) return SendGone();  // said again: the answer was lost
  const bool again = std::exchange(stopped_, true) && world_->broken(Mutation::kSecondStopKills);
  Stop(again ? Duration(0) : Duration(stop.grace_ns));
}

void Shim::Stop(Duration grace) {
  Reap();  // whoever ended before must not look as if we had ended it
  if (gone_) return;
  const bool now = grace <= Duration(0);
  const Instant until = supervisor_.Now() + grace;
  for (Worker& worker : workers_) {
    StepWorker(&worker, now ? SlotEvent::kKillRequested : SlotEvent::kStopRequested, until);
  }
  if (now) return;
  Instant first = kNever;
  for (const Worker& worker : workers_) first = std::min(first, worker.slot.grace_until());
  if (first == kNever) return;
  supervisor_.Cancel(&grace_timer_);
  grace_timer_ = supervisor_.At(first, [this] {
    Reap();
    if (gone_) return;
    for (Worker& worker : workers_) StepWorker(&worker, SlotEvent::kGraceOver);
  });
}

// ---- The lease

void Shim::SendLeaseRequest() {
  supervisor_.Cancel(&lease_timer_);
  if (!EpochIsLive()) return;
  if (daemon_link_ != 0) Send(frame::LeaseRequest{lease_.Request(supervisor_.Now())});
  lease_timer_ = supervisor_.After(world_->spec().lease / 3, [this] { SendLeaseRequest(); });
}

void Shim::OnLeaseAnswer(const frame::LeaseAnswer& answer) {
  if (!TermIsCurrent(answer.term)) return;
  if (ordered_ && answer.request_id >= order_request_) {
    if (answer.granted) return StartOrdered();
    ordered_.reset();
    return Send(State());
  }
  if (!EpochIsLive()) return;
  if (!answer.granted) return Stop(Duration(0));
  if (lease_.Grant(answer.request_id, Duration(answer.lease_ns))) TellKeeper();
}

void Shim::TellKeeper() {
  if (world_->broken(Mutation::kLeaseNeverEnds)) return;
  const Instant until = lease_.until();
  if (until == kNever) {
    supervisor_.Cancel(&lease_end_timer_);
  } else if (!supervisor_.Postpone(lease_end_timer_, until + kKeeperPatience)) {
    supervisor_.Cancel(&lease_end_timer_);
    lease_end_timer_ = supervisor_.At(until + kKeeperPatience, [this] {
      if (EpochIsLive()) Stop(Duration(0));
    });
  }
  keeper_.Deliver([this, until] {
    if (until != kNever && keeper_.Postpone(keeper_timer_, until)) return;
    keeper_.Cancel(&keeper_timer_);
    if (until == kNever) return;
    keeper_timer_ = keeper_.At(until, [this] {
      world_->trace("n", node_->index() + 1, " lease over");
      supervisor_.Kill();
      EndAll(&keeper_);
    });
  });
}

// ---- Workers

void Shim::OnPageRequest(const frame::PageRequest& request) {
  if (EpochIsLive() && request.epoch == epoch_) {
    node_->OnPageRequest(epoch_, request.checkpoint, request.stop);
  }
}

// One that hangs did not enter the collective in which the others wait.
void Shim::OnDiagnoseWorkers(const frame::DiagnoseWorkers& ask) {
  if (!EpochIsLive() || ask.epoch != epoch_) return;
  frame::WorkersDiagnosed diagnosed{epoch_, {}};
  for (const Worker& worker : workers_) {
    if (!worker.slot.HasProcess()) continue;
    frame::RankEvidence& evidence = diagnosed.ranks.emplace_back();
    evidence.rank = worker.launch.rank;
    evidence.phase_ns = Duration(seconds(10)).count();
    evidence.step = static_cast<uint64_t>(std::max<int64_t>(last_step_, 0));
    evidence.in_collective = !node_->Hangs(worker.pid);
    evidence.collectives = evidence.in_collective ? 2 : 1;
  }
  Send(std::move(diagnosed));
}

void Shim::OnWorkerFrame(int64_t epoch, int rank, frame::Frame frame) {
  supervisor_.Deliver([this, epoch, rank, frame = std::move(frame)] {
    if (epoch != epoch_) return;
    const bool ours = std::any_of(workers_.begin(), workers_.end(), [rank](const Worker& w) {
      return w.launch.rank == rank && w.slot.HasProcess();
    });
    if (!ours) return;
    if (const auto* shard = std::get_if<frame::ShardPrepared>(&frame)) records_.Keep(*shard);
    if (const auto* said = std::get_if<frame::CheckpointPublished>(&frame)) records_.Keep(*said);
    if (const auto* said = std::get_if<frame::CheckpointRejected>(&frame)) records_.Keep(*said);
    Send(frame);
  });
}

void Shim::SendProgress(int64_t epoch, int64_t step, int64_t total) {
  supervisor_.Deliver([this, epoch, step, total] {
    if (epoch != epoch_ || step <= last_step_) return;
    last_step_ = step;
    frame::Progress progress;
    progress.epoch = epoch;
    progress.step = static_cast<uint64_t>(step);
    progress.total_steps = static_cast<uint64_t>(total);
    Send(progress);
  });
}

// ---- The end

void Shim::ArmAbandoned() {
  supervisor_.Cancel(&abandon_timer_);
  if (EpochIsLive()) return;
  const Duration patience = std::max(world_->spec().lease, kShortestAbandonment);
  abandon_timer_ = supervisor_.After(patience, [this] {
    if (daemon_link_ == 0 && !EpochIsLive()) Release();
  });
}

void Shim::Release() {
  quitting_ = true;
  if (!EpochIsLive()) return FinishEnd();
  Stop(Duration(0));
}

void Shim::KillKeeper() {
  if (!keeper_.alive()) return;
  keeper_.Kill();
  if (!supervisor_.alive()) return node_->OnShimDead(this);
  supervisor_.Continue();  // the signal that it asked for
  supervisor_.Deliver([this] { EndAll(&supervisor_); });
}

void Shim::KillSupervisor() {
  if (!supervisor_.alive()) return;
  supervisor_.Kill();
  if (!keeper_.alive()) return node_->OnShimDead(this);
  keeper_.Deliver([this] { EndAll(&keeper_); });
}

// The survivor of the two kills every descendant, again and again until none is left.
void Shim::EndAll(Process* survivor) {
  quitting_ = true;
  bool left = false;
  for (Worker& worker : workers_) {
    if (!worker.slot.HasProcess()) continue;
    if (node_->ReapForDying(worker.pid)) {
      worker.pid = 0;
      worker.slot = Slot();
    } else {
      node_->KillWorker(worker.pid);
      left = true;
    }
  }
  if (left) {
    survivor->After(milliseconds(2), [this, survivor] { EndAll(survivor); });
  } else {
    FinishEnd();
  }
}

void Shim::FinishEnd() {
  world_->trace("n", node_->index() + 1, " shim ends");
  const uint32_t link = std::exchange(daemon_link_, 0);
  supervisor_.Kill();
  keeper_.Kill();
  if (link != 0) node_->daemon().OnShimClosed(link);
  node_->OnShimDead(this);
}

std::string Shim::Fingerprint() const {
  std::string text =
      absl::StrCat(term_, "/", epoch_, "/", gone_, "/", started_, "/", lease_.until().ns, "/",
                   node_->spawned(), "/", ordered_ ? ordered_->epoch : -1);
  for (const Worker& worker : workers_) {
    absl::StrAppend(&text, " ", worker.launch.rank, ":", worker.pid, ":",
                    SlotPhaseName(worker.slot.phase()), ":", worker.slot.grace_until().ns, ":",
                    worker.told_to_end);
  }
  return text;
}

}  // namespace trainctl::sim
