// What the workers of one epoch do together: load, step, save, end. The truth, which the job's
// processes only hear of.
#ifndef TRAINCTL_TESTS_SIM_TRAINING_H_
#define TRAINCTL_TESTS_SIM_TRAINING_H_

#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "launcher/coordinator/journal_record.h"
#include "runtime/base/ids.h"
#include "runtime/local/frames.h"

namespace trainctl::sim {

class World;

class Training {
 public:
  Training(World* world, const EpochFormed& formed);

  Epoch epoch() const { return epoch_; }
  int64_t steps_done() const { return steps_done_; }
  int NodeOf(int rank) const { return node_of_rank_[static_cast<size_t>(rank)]; }
  int world_size() const { return static_cast<int>(node_of_rank_.size()); }

  void Runs(int rank);  // its program was executed
  void Ended(int rank, bool failed);
  void Granted(const frame::CommitGranted& granted);
  void Request(bool checkpoint, bool stop);
  void Hang(int rank);

 private:
  void Load();
  void Tick();
  bool CanStep() const;
  void Save();
  void Publish(const frame::CommitGranted& granted);
  void AllEnd();

  World* world_;
  const Epoch epoch_;
  const Step resume_;
  std::vector<int> node_of_rank_;
  std::vector<int> nodes_;
  absl::flat_hash_set<int> running_;
  bool loaded_ = false;
  bool broken_ = false;  // a peer is lost: no collective ends any more
  bool hung_ = false;
  bool done_ = false;
  bool save_asked_ = false;
  bool stop_asked_ = false;
  int64_t step_ = 0;
  int64_t steps_done_ = 0;
};

}  // namespace trainctl::sim

#endif  // TRAINCTL_TESTS_SIM_TRAINING_H_
