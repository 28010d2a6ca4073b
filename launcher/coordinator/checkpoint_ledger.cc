#include "launcher/coordinator/checkpoint_ledger.h"

#include <cstddef>
#include <utility>

namespace trainctl {

void CheckpointLedger::Found(const std::vector<Step>& steps) {
  committed_.clear();
  for (const Step step : steps) {
    if (!damaged_.contains(step)) committed_.insert(step);
  }
}

void CheckpointLedger::BeginEpoch() {
  prepared_.clear();
  granted_.clear();
}

std::optional<CheckpointLedger::Grant> CheckpointLedger::Prepared(Step step,
                                                                  const ShardValue& shard,
                                                                  int world_size) {
  if (granted_.contains(step) || shard.rank < 0 || shard.rank >= world_size) return std::nullopt;
  std::map<int, ShardValue>& shards = prepared_[step];
  shards[shard.rank] = shard;
  if (shards.size() < static_cast<size_t>(world_size)) return std::nullopt;
  Grant grant;
  for (auto& [rank, value] : shards) grant.shards.push_back(std::move(value));
  grant.may_delete = BeyondRetention(step);
  granted_.insert(step);
  // Steps only grow within an epoch, so an older step that is still incomplete never will be.
  prepared_.erase(prepared_.begin(), prepared_.upper_bound(step));
  return grant;
}

std::vector<Step> CheckpointLedger::Committed(Step step) {
  damaged_.erase(step);  // it was written anew
  std::vector<Step> given_up = BeyondRetention(step);
  committed_.insert(step);
  for (const Step old : given_up) committed_.erase(old);
  return given_up;
}

void CheckpointLedger::Damaged(Step step) {
  committed_.erase(step);
  damaged_.insert(step);
}

void CheckpointLedger::RememberCommitted(Step step) {
  damaged_.erase(step);
  committed_.insert(step);
}

void CheckpointLedger::RememberRecoveryPoint(Step step) {
  committed_.erase(committed_.upper_bound(step), committed_.end());
  if (step >= Step(0)) RememberCommitted(step);
}

Step CheckpointLedger::recovery_point() const {
  return committed_.empty() ? Step(-1) : *committed_.rbegin();
}

// What is older than the `keep` newest once `newest` is committed; never `newest` itself.
std::vector<Step> CheckpointLedger::BeyondRetention(Step newest) const {
  std::set<Step> all = committed_;
  all.insert(newest);
  std::vector<Step> beyond;
  for (const Step step : all) {
    if (all.size() - beyond.size() <= static_cast<size_t>(keep_)) break;
    if (step != newest) beyond.push_back(step);
  }
  return beyond;
}

}  // namespace trainctl
