#include "tests/sim/training.h"

#include <algorithm>
#include <csignal>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/sim/node.h"
#include "tests/sim/world.h"

namespace trainctl::sim {
namespace {

constexpr size_t kMostVictims = 16;  // of a lost peer that end by themselves

}  // namespace

Training::Training(World* world, const EpochFormed& formed)
    : world_(world), epoch_(formed.epoch), resume_(formed.resume_step) {
  for (const NodeShare& share : formed.nodes) {
    const int index = world->IndexOf(share.node);
    nodes_.push_back(index);
    node_of_rank_.insert(node_of_rank_.end(), static_cast<size_t>(share.workers), index);
  }
}

void Training::Runs(int rank) {
  running_.insert(rank);
  if (static_cast<int>(running_.size()) < world_size() || broken_) return;
  world_->timeline().After(world_->random().Between(milliseconds(200), seconds(2)),
                           [this] { Load(); });
}

void Training::Load() {
  if (broken_ || loaded_ || static_cast<int>(running_.size()) < world_size()) return;
  loaded_ = true;
  Folder& folder = world_->folder();
  const auto& published = folder.published();
  Step from = resume_;
  while (from >= Step(0)) {
    const auto found = published.find(from);
    if (found == published.end() || !found->second.damaged) break;
    for (const int rank : {0, world_size() - 1}) {
      world_->node(NodeOf(rank))
          .FromWorker(epoch_, rank,
                      frame::CheckpointRejected{epoch_.value, from.value, "digest differs"});
    }
    from = found == published.begin() ? Step(-1) : std::prev(found)->first;
  }
  world_->checkers().OnTrainingBegan(epoch_, resume_, from);
  folder.Sweep(epoch_);
  step_ = std::max<int64_t>(from.value, 0);
  world_->trace("epoch ", epoch_.value, " trains from step ", step_);
  world_->timeline().After(world_->step_time(), [this] { Tick(); });
}

bool Training::CanStep() const {
  if (hung_) return false;
  return !world_->any_machine_stopped() ||
         std::all_of(nodes_.begin(), nodes_.end(),
                     [this](int node) { return world_->node(node).machine().runs(); });
}

void Training::Tick() {
  if (broken_ || done_) return;
  if (CanStep()) {
    ++step_;
    ++steps_done_;
    world_->node(NodeOf(0)).Progress(epoch_, step_, world_->total_steps());
    const bool last = step_ >= world_->total_steps();
    const bool save = step_ % world_->steps_between_checkpoints() == 0 || last || save_asked_;
    if (save && world_->saves()) Save();
    if (last || (stop_asked_ && !world_->saves())) {
      done_ = true;
      // Rank 0 publishes what is prepared before it ends.
      return world_->timeline().After(world_->saves() ? seconds(3) : milliseconds(1),
                                      [this] { AllEnd(); });
    }
  }
  world_->timeline().After(world_->step_time(), [this] { Tick(); });
}

void Training::Save() {
  save_asked_ = false;
  if (world_->broken(Mutation::kPublishUngranted)) {
    world_->folder().Prepare(Step(step_), epoch_);
    return Publish(frame::CommitGranted{epoch_.value, 1, step_, {}, {}});
  }
  const Step step(step_);
  const Duration slowest = world_->random().Between(milliseconds(5), milliseconds(400));
  for (int rank = 0; rank < world_size(); ++rank) {
    if (world_->faults().ShardFails()) continue;
    const Duration delay = world_->random().Between(milliseconds(1), slowest);
    Node& node = world_->node(NodeOf(rank));
    node.InWorker(epoch_, rank, delay, [this, &node, rank, step] {
      world_->folder().Prepare(step, epoch_);
      node.FromWorker(epoch_, rank,
                      frame::ShardPrepared{epoch_.value, step.value, {rank, "shard", 100, "x"}});
    });
  }
}

void Training::Granted(const frame::CommitGranted& granted) {
  world_->node(NodeOf(0)).InWorker(epoch_, 0,
                                   world_->random().Between(milliseconds(2), milliseconds(300)),
                                   [this, granted] { Publish(granted); });
}

void Training::Publish(const frame::CommitGranted& granted) {
  const Step step(granted.step);
  if (!world_->folder().Publish(step, epoch_)) return;
  world_->trace("epoch ", epoch_.value, " publishes step ", step.value);
  world_->checkers().OnPublished(step, epoch_, Term(granted.term), NodeOf(0));
  Node& node = world_->node(NodeOf(0));
  // It may die between the rename and each of the rest.
  node.InWorker(epoch_, 0, milliseconds(1), [this, &node, granted] {
    node.FromWorker(epoch_, 0, frame::CheckpointPublished{epoch_.value, granted.step});
    std::vector<int64_t> old = granted.may_delete;
    if (world_->broken(Mutation::kDeleteTooMuch)) old.push_back(granted.step);
    node.InWorker(epoch_, 0, milliseconds(1), [this, old] {
      for (const int64_t gone : old) {
        world_->checkers().OnDeleted(Step(gone));
        world_->folder().Delete(Step(gone));
      }
    });
    if (stop_asked_) {
      done_ = true;
      world_->timeline().After(milliseconds(5), [this] { AllEnd(); });
    }
  });
}

void Training::Request(bool checkpoint, bool stop) {
  save_asked_ = save_asked_ || checkpoint;
  stop_asked_ = stop_asked_ || stop;
}

void Training::AllEnd() {
  for (int rank = 0; rank < world_size(); ++rank) {
    world_->node(NodeOf(rank)).EndWorker(epoch_, rank, false, 0, "");
  }
}

void Training::Hang(int rank) {
  hung_ = true;
  Node& node = world_->node(NodeOf(rank));
  node.Hang(epoch_, rank);
  // Its shim notices; that it tells so may be lost.
  node.InWorker(
      epoch_, rank, world_->random().Between(seconds(2), seconds(20)), [this, &node, rank] {
        node.FromWorker(epoch_, rank,
                        frame::HangSuspected{epoch_.value, rank, static_cast<uint64_t>(step_),
                                             "completed no step"});
      });
}

// Some of the others notice; the rest waits for ever.
void Training::Ended(int rank, bool) {
  running_.erase(rank);
  // A coordinator that does not know of them may order the same epoch anew.
  if (!loaded_ && running_.empty()) {
    broken_ = hung_ = false;
    return;
  }
  if (broken_ || done_) return;
  broken_ = true;
  for (size_t i = 0; i < std::min(kMostVictims, node_of_rank_.size()); ++i) {
    const int victim = world_->random().Int(0, world_size() - 1);
    if (victim == rank || world_->random().Chance(0.5)) continue;
    const Duration delay = world_->random().Between(milliseconds(10), seconds(3));
    world_->node(NodeOf(victim)).InWorker(epoch_, victim, delay, [this, victim] {
      world_->node(NodeOf(victim))
          .EndWorker(epoch_, victim, false, 1, "RuntimeError: Connection closed by peer");
    });
  }
}

}  // namespace trainctl::sim
