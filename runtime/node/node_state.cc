#include "runtime/node/node_state.h"

#include <algorithm>

namespace trainctl {
namespace {

// A worker may invent names and steps without end.
constexpr size_t kMaxMetrics = 256;
constexpr size_t kMaxRejected = 64;

}  // namespace

void NodeState::BeginEpoch(int64_t epoch) {
  state_.epoch = epoch;
  state_.gone = false;
  state_.unkillable.clear();
  state_.slots.clear();
  state_.exchanges.clear();
  shards_.clear();
  metrics_.clear();
  published_.clear();
  rejected_.clear();
}

frame::SlotState* NodeState::FindSlot(int32_t rank) {
  const auto found = std::find_if(state_.slots.begin(), state_.slots.end(),
                                  [rank](const auto& slot) { return slot.rank == rank; });
  return found == state_.slots.end() ? nullptr : &*found;
}

void NodeState::Take(const frame::ShimState& state) {
  ordered_ = -1;  // it was refused, or lost with the connection
  if (state.epoch < state_.epoch) {
    // A new shim in place of one that died; it knows nothing of the epoch that was.
    state_.reserved_port = state.reserved_port;
    return;
  }
  if (state.epoch != state_.epoch) BeginEpoch(state.epoch);
  state_ = state;
}

void NodeState::Apply(const frame::Frame& frame) {
  if (const auto* started = std::get_if<frame::EpochStarted>(&frame)) {
    if (started->epoch < state_.epoch) return;
    if (started->epoch > state_.epoch) BeginEpoch(started->epoch);
    state_.slots = started->slots;
    state_.reserved_port = started->reserved_port;
  } else if (const auto* exited = std::get_if<frame::WorkerExited>(&frame)) {
    if (exited->epoch < state_.epoch) return;
    if (exited->epoch > state_.epoch) BeginEpoch(exited->epoch);
    if (frame::SlotState* slot = FindSlot(exited->rank)) {
      slot->running = false;
      slot->exit = exited->exit;
      slot->exit_ns = exited->exit_ns;
      slot->output_tail = exited->output_tail;
      slot->error_json = exited->error_json;
    }
  } else if (const auto* gone = std::get_if<frame::EpochGone>(&frame)) {
    if (gone->epoch != state_.epoch) return;
    state_.gone = true;
    state_.unkillable.clear();
  } else if (const auto* stuck = std::get_if<frame::Unkillable>(&frame)) {
    if (stuck->epoch == state_.epoch) state_.unkillable = stuck->which;
  } else if (const auto* exchange = std::get_if<frame::Exchange>(&frame)) {
    if (exchange->epoch == state_.epoch) state_.exchanges.push_back(*exchange);
  } else if (const auto* shard = std::get_if<frame::ShardPrepared>(&frame)) {
    if (shard->epoch == state_.epoch) shards_[shard->shard.rank] = *shard;
  } else if (const auto* published = std::get_if<frame::CheckpointPublished>(&frame)) {
    if (published->epoch == state_.epoch) published_ = {*published};
  } else if (const auto* rejected = std::get_if<frame::CheckpointRejected>(&frame)) {
    if (rejected->epoch != state_.epoch || rejected_.size() == kMaxRejected) return;
    rejected_.emplace(rejected->step, *rejected);
  } else if (const auto* metric = std::get_if<frame::Metric>(&frame)) {
    if (metric->epoch != state_.epoch) return;
    const std::pair<int32_t, std::string> key(metric->rank, metric->name);
    if (metrics_.size() < kMaxMetrics || metrics_.count(key) != 0) metrics_[key] = *metric;
  }
}

void NodeState::ShimDied(int64_t now_ns) {
  ordered_ = -1;
  for (frame::SlotState& slot : state_.slots) {
    if (!slot.running) continue;
    slot.running = false;
    slot.exit = {};
    slot.exit.kind = frame::Exit::Kind::kLost;
    slot.exit.message = "the shim of this node died";
    slot.exit_ns = now_ns;
  }
  state_.gone = true;
  state_.exchanges.clear();
}

frame::ShimState NodeState::Told() const {
  frame::ShimState told = state_;
  if (ordered_ <= state_.epoch) return told;
  told.epoch = ordered_;
  told.gone = false;
  told.slots.clear();
  told.exchanges.clear();
  return told;
}

std::vector<frame::Frame> NodeState::Retold() const {
  std::vector<frame::Frame> frames;
  for (const auto& [step, rejected] : rejected_) frames.push_back(rejected);
  for (const auto& [rank, shard] : shards_) frames.push_back(shard);
  for (const auto& published : published_) frames.push_back(published);
  for (const auto& [key, metric] : metrics_) frames.push_back(metric);
  if (!state_.unkillable.empty()) {
    frames.push_back(frame::Unkillable{state_.epoch, state_.unkillable});
  }
  return frames;
}

}  // namespace trainctl
