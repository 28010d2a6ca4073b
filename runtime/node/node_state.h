// What this node knows of one job's workers, kept from what the shim tells, so that a new
// coordinator can be told all of it at once and so that a shim that died can be reported. PURE.
#ifndef TRAINCTL_RUNTIME_NODE_NODE_STATE_H_
#define TRAINCTL_RUNTIME_NODE_NODE_STATE_H_

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "runtime/local/frames.h"

namespace trainctl {

// Not thread-safe.
class NodeState {
 public:
  // A shim's own full state, first after every connection to one. What this node knows of the same
  // epoch and the shim does not tell again (the last words of workers) is kept.
  void Take(const frame::ShimState& state);
  // Any later frame of the shim; those that tell nothing lasting are ignored.
  void Apply(const frame::Frame& frame);
  // The shim is dead and so is everything below it: workers that ran are lost.
  void ShimDied(int64_t now_ns);
  // An order to start workers goes to the shim: until it says what became of it, they may live.
  void Ordered(const frame::StartEpoch& start) { ordered_ = start.epoch; }

  // What the shim told.
  const frame::ShimState& state() const { return state_; }
  // What a coordinator is told first: the same, unless workers may live that the shim has not
  // spoken of. Then it is their epoch, not gone, without a word about any of them.
  frame::ShimState Told() const;
  // What follows the state on a new Join stream, each with the effect of one if told twice:
  // rejected checkpoints, prepared shards, published checkpoints, metrics, what cannot be killed.
  std::vector<frame::Frame> Retold() const;

 private:
  void BeginEpoch(int64_t epoch);
  frame::SlotState* FindSlot(int32_t rank);

  frame::ShimState state_;
  int64_t ordered_ = -1;  // the epoch of the newest order that the shim may not have read
  std::map<int32_t, frame::ShardPrepared> shards_;  // newest by rank
  std::map<std::pair<int32_t, std::string>, frame::Metric> metrics_;
  std::vector<frame::CheckpointPublished> published_;      // newest, at most one
  std::map<int64_t, frame::CheckpointRejected> rejected_;  // by step
};

}  // namespace trainctl

#endif  // TRAINCTL_RUNTIME_NODE_NODE_STATE_H_
