// Saving the state of a run: every rank writes its shard, rank 0 publishes once the coordinator
// grants it.
#ifndef TRAINCTL_RUNTIME_TRAINER_CHECKPOINTING_H_
#define TRAINCTL_RUNTIME_TRAINER_CHECKPOINTING_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "runtime/base/ids.h"
#include "runtime/checkpoint/writer.h"
#include "runtime/trainer/training_state.h"
#include "runtime/worker/communicator.h"
#include "runtime/worker/session.h"

namespace trainctl {

class Checkpointing {
 public:
  // `keep` is used only if nobody else decides on retention, else 0. References outlive it.
  Checkpointing(std::string folder, int keep, Session& session, Communicator& communicator);

  // Collective. Makes the folder, proves that every rank can write there and removes what earlier
  // epochs left unfinished.
  absl::Status Open();

  // Collective. Saves the state after `step` steps. A full disk is no error: the older checkpoints
  // stay, training goes on, and rank 0 tells the user once when that begins and once when it is
  // over. Any other failure on any rank is an error on all.
  absl::Status Save(Step step, const std::vector<StateTensor>& tensors, const Progress& progress);

  // On rank 0: why the newest Save left nothing behind, as RESOURCE_EXHAUSTED; else OK.
  const absl::Status& unsaved() const { return unsaved_; }

 private:
  absl::Status Agree(const absl::Status& mine);
  absl::Status Publish(Step step, const frame::CommitGranted& granted, const Progress& progress);
  void TellLost(const absl::Status& why);

  const std::string folder_;
  const int keep_;
  Session& session_;
  Communicator& communicator_;
  CheckpointWriter writer_;
  absl::Status unsaved_;
  bool told_lost_ = false;  // the user knows that the disk is full
};

}  // namespace trainctl

#endif  // TRAINCTL_RUNTIME_TRAINER_CHECKPOINTING_H_
