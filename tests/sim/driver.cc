#include "tests/sim/driver.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "absl/strings/str_cat.h"
#include "launcher/journal_format.h"
#include "tests/sim/node.h"
#include "tests/sim/world.h"

namespace trainctl::sim {
namespace {

constexpr Duration kHangUpPatience = seconds(5);

}  // namespace

Driver::Driver(World* world)
    : world_(world), process_(&world->timeline(), &world->node(0).machine()) {}

void Driver::Start() {
  Disk& disk = world_->disk();
  if (terms_ > 0 && world_->broken(Mutation::kLoseSyncedTail)) disk.ForgetSynced(200);
  absl::StatusOr<JournalContents> contents = ParseJournal("journal", disk.bytes());
  if (!contents.ok()) {
    return world_->Violation("journal", std::string(contents.status().message()));
  }
  disk.Truncate(contents->valid);
  process_.Start();
  if (contents->valid == 0 && !disk.Write(JournalHeader())) return Die();
  records_ = std::move(contents->records);
  // A write that failed or was torn may have left whole records.
  if (seen_ < records_.size()) {
    TellOfRecords({records_.begin() + static_cast<ptrdiff_t>(seen_), records_.end()});
  }
  seen_ = records_.size();
  world_->ForgetAtStart(&records_);
  term_ = NextTerm(records_);
  ++terms_;
  outcome_.reset();
  to_release_.clear();
  inbox_.clear();
  seats_.assign(world_->nodes().size(), Seat{});
  replaced_.clear();
  joined_.clear();
  busy_ = true;
  writing_ = false;
  armed_ = kNever;
  timer_ = {};
  world_->trace("coordinator starts, term ", term_.value, ", ", records_.size(), " records");
  world_->checkers().OnCoordinatorStarted(term_, records_);
  coordinator_ = std::make_unique<Coordinator>(Coordinator::Replay(world_->spec(), records_));
  Batch batch;
  coordinator_->Start(process_.Now(), world_->WallClock(), term_, &batch);
  Perform(std::move(batch));
  Pump();
}

// ---- Dying

void Driver::Kill(absl::string_view why) {
  if (!process_.alive()) return;
  world_->trace("coordinator dies: ", why);
  Die();
}

void Driver::Die() {
  if (writing_) world_->disk().TearLastWrite();
  process_.Kill();
  coordinator_.reset();
  world_->network().CoordinatorDied();
  world_->node(0).daemon().OnCoordinatorDied(false);
}

void Driver::LosePower() {
  process_.Kill();
  coordinator_.reset();
  world_->disk().LosePower();
  world_->network().CoordinatorVanished();
}

// ---- What it is told

void Driver::OnEvent(StreamId stream, int node, Event event) {
  process_.Deliver([this, told = Told{stream, node, std::move(event)}]() mutable {
    inbox_.push_back(std::move(told));
    Pump();
  });
}

void Driver::OnNodeClosed(StreamId stream) {
  process_.Deliver([this, stream] {
    inbox_.push_back({stream, 0, std::nullopt});
    Pump();
  });
}

void Driver::Tell(Event event) {
  process_.Deliver([this, event = std::move(event)]() mutable {
    inbox_.push_back({kNoStream, 0, std::move(event)});
    Pump();
  });
}

void Driver::Pump() {
  while (!busy_ && !inbox_.empty() && process_.runs()) {
    Told told = std::move(inbox_.front());
    inbox_.pop_front();
    if (std::optional<Event> event = Admit(std::move(told))) Step(*event);
  }
  if (!busy_ && process_.alive()) ArmTimer();
}

std::optional<Event> Driver::Admit(Told told) {
  if (told.stream == kNoStream) return std::move(told.event);
  const auto joined = joined_.find(told.stream);
  if (told.event && std::holds_alternative<NodeJoined>(*told.event)) {
    return AdmitJoin(told, std::get<NodeJoined>(*std::move(told.event)));
  }
  if (joined == joined_.end()) return std::nullopt;  // of a stream that was replaced or refused
  if (told.event) return std::move(told.event);
  Seat& seat = seats_[static_cast<size_t>(joined->second)];
  world_->trace(seat.name, " left, stream ", told.stream);
  seat.stream = kNoStream;
  joined_.erase(joined);
  return NodeLeft{seat.name, seat.incarnation, "its stream broke"};
}

std::optional<Event> Driver::AdmitJoin(const Told& told, NodeJoined joined) {
  Seat& seat = seats_[static_cast<size_t>(told.node)];
  world_->trace(joined.node, " joins, stream ", told.stream, ", epoch ", joined.epoch.value,
                joined.gone ? ", gone" : "");
  if (seat.stream != kNoStream && seat.incarnation > joined.incarnation) {
    world_->network().CloseByCoordinator(told.stream);
    return std::nullopt;
  }
  if (seat.stream != kNoStream) {
    seat.replaced = seat.stream;
    replaced_.push_back(told.node);
  }
  seat.stream = told.stream;
  seat.incarnation = joined.incarnation;
  seat.name = joined.node;
  joined_[told.stream] = told.node;
  return joined;
}

// ---- Deciding and doing

void Driver::Step(const Event& event) {
  Batch batch;
  coordinator_->Step(process_.Now(), world_->WallClock(), event, &batch);
  Perform(std::move(batch));
}

void Driver::Perform(Batch batch) {
  busy_ = true;
  world_->Mutate(&batch);
  world_->checkers().OnDecided(batch, *coordinator_, process_.Now());
  if (!batch.persist.empty()) return WriteJournal(std::make_shared<Batch>(std::move(batch)));
  PerformActions(batch.perform);
}

void Driver::WriteJournal(std::shared_ptr<Batch> batch) {
  if (world_->broken(Mutation::kCrash)) std::abort();
  if (world_->faults().DiesHere()) return Kill("before a write");
  if (world_->broken(Mutation::kActBeforeDurable)) {
    for (const Action& action : std::exchange(batch->perform, {})) {
      world_->checkers().OnPerform(action);
      Do(action);
    }
  }
  writing_ = true;
  if (!world_->disk().Write(JournalFrames(batch->persist))) return Kill("the disk is full");
  process_.After(world_->faults().SyncTime(), [this, batch] { Sync(batch); });
}

void Driver::Sync(std::shared_ptr<Batch> batch) {
  if (world_->faults().DiesHere()) return Kill("within a write");
  writing_ = false;
  if (!world_->disk().Sync()) return Kill("fsync failed");
  records_.insert(records_.end(), batch->persist.begin(), batch->persist.end());
  seen_ += batch->persist.size();
  TellOfRecords(batch->persist);
  if (world_->faults().DiesHere()) return Kill("after a write");
  PerformActions(batch->perform);
  Pump();
}

void Driver::TellOfRecords(const std::vector<JournalRecord>& records) {
  for (const JournalRecord& record : records) {
    if (const auto* formed = std::get_if<EpochFormed>(&record)) world_->OnFormed(*formed);
  }
  world_->checkers().OnDurable(records);
}

void Driver::PerformActions(const std::vector<Action>& actions) {
  for (const Action& action : actions) {
    world_->checkers().OnPerform(action);
    Do(action);
    if (world_->faults().DiesHere()) return Kill("between two actions");
  }
  DropReplaced();
  world_->checkers().OnPerformed(*coordinator_, process_.Now());
  world_->faults().OnPhase(coordinator_->phase());
  busy_ = false;
  if (outcome_ && !to_release_.empty()) {
    for (const Action& action : std::exchange(to_release_, {})) {
      SendTo(std::get<ReleaseNode>(action).node, action);
    }
  }
}

void Driver::DropReplaced() {
  for (const int node : std::exchange(replaced_, {})) {
    Seat& seat = seats_[static_cast<size_t>(node)];
    const StreamId old = std::exchange(seat.replaced, kNoStream);
    if (old == kNoStream) continue;
    joined_.erase(old);
    world_->network().CloseByCoordinator(old);
  }
}

void Driver::Do(const Action& action) {
  if (const auto* a = std::get_if<Announce>(&action)) {
    world_->trace("coordinator says: ", a->text);
  } else if (std::holds_alternative<FindCheckpoints>(action)) {
    inbox_.push_back({kNoStream, 0, CheckpointsFound{world_->ListCheckpoints()}});
  } else if (const auto* finish = std::get_if<FinishJob>(&action)) {
    world_->trace("finished: ", OutcomeName(finish->outcome.kind), ": ", finish->outcome.reason);
    outcome_ = finish->outcome;
    process_.After(kHangUpPatience, [this] { End(); });
  } else if (const auto* refuse = std::get_if<RefuseNode>(&action)) {
    Refuse(*refuse);
  } else if (std::holds_alternative<ReleaseNode>(action)) {
    to_release_.push_back(action);
  } else if (!std::holds_alternative<OpenStore>(action)) {
    std::visit(
        [this, &action](const auto& a) {
          if constexpr (requires { a.node; }) SendTo(a.node, action);
        },
        action);
  }
}

void Driver::SendTo(const std::string& node, const Action& action) {
  const int index = world_->IndexOf(node);
  if (index < 0) return;
  const Seat& seat = seats_[static_cast<size_t>(index)];
  if (seat.stream != kNoStream) world_->network().Send(seat.stream, Order{term_, action});
}

void Driver::Refuse(const RefuseNode& action) {
  const int index = world_->IndexOf(action.node);
  if (index < 0) return;
  Seat& seat = seats_[static_cast<size_t>(index)];
  if (seat.stream == kNoStream || seat.incarnation != action.incarnation) return;
  world_->trace("refused ", action.node, ": ", action.reason);
  joined_.erase(seat.stream);
  world_->network().CloseByCoordinator(seat.stream);
  seat.stream = std::exchange(seat.replaced, kNoStream);
}

void Driver::End() {
  if (!process_.alive()) return;
  process_.Kill();
  coordinator_.reset();
  world_->network().CoordinatorDied();
  world_->node(0).daemon().OnCoordinatorDied(true);
}

// ---- Time

// Armed later than needed never, earlier now and then: the deadline moves with every lease.
void Driver::ArmTimer() {
  const Instant next = coordinator_->next_deadline();
  if (next == kNever || next >= armed_) return;
  process_.Cancel(&timer_);
  armed_ = next;
  timer_ = process_.At(next, [this] { OnTimer(); });
}

void Driver::OnTimer() {
  armed_ = kNever;
  timer_ = {};
  if (coordinator_->next_deadline() <= process_.Now()) {
    inbox_.push_back({kNoStream, 0, DeadlineReached{}});
  }
  Pump();
}

}  // namespace trainctl::sim
