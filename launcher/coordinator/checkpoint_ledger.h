// Which step is the recovery point, when a checkpoint may be published and what may be deleted.
// Pure. REQUIRES of all: keep >= 1.
#ifndef TRAINCTL_LAUNCHER_COORDINATOR_CHECKPOINT_LEDGER_H_
#define TRAINCTL_LAUNCHER_COORDINATOR_CHECKPOINT_LEDGER_H_

#include <map>
#include <optional>
#include <set>
#include <vector>

#include "launcher/coordinator/event.h"
#include "runtime/base/ids.h"

namespace trainctl {

class CheckpointLedger {
 public:
  explicit CheckpointLedger(int keep) : keep_(keep) {}

  // What the folder really holds: trusted over what is remembered, because rank 0 may have
  // published and died before telling, and a user may have deleted. Damaged steps stay out.
  void Found(const std::vector<Step>& steps);

  // Shards and grants of older epochs are forgotten: nothing old commits.
  void BeginEpoch();

  struct Grant {
    std::vector<ShardValue> shards;  // by rank
    std::vector<Step> may_delete;    // once this step is committed
  };
  // A shard is written. The grant, once, when all ranks' are.
  std::optional<Grant> Prepared(Step step, const ShardValue& shard, int world_size);

  // The step is published. Returns the steps that retention gave up with it.
  std::vector<Step> Committed(Step step);
  void Damaged(Step step);

  // What the journal says of an earlier term.
  void RememberCommitted(Step step);
  void RememberRecoveryPoint(Step step);  // -1: none; as the folder was found at that time
  void RememberDeleted(Step step) { committed_.erase(step); }

  // Newest step all of whose shards are committed; -1 = none.
  Step recovery_point() const;

 private:
  std::vector<Step> BeyondRetention(Step newest) const;

  int keep_;
  std::set<Step> committed_;
  std::set<Step> damaged_;
  std::map<Step, std::map<int, ShardValue>> prepared_;
  std::set<Step> granted_;
};

}  // namespace trainctl

#endif  // TRAINCTL_LAUNCHER_COORDINATOR_CHECKPOINT_LEDGER_H_
