// The training loop of one worker: the same program on every rank, each working on its share of the
// global batch.
#ifndef TRAINCTL_RUNTIME_TRAINER_TRAINER_H_
#define TRAINCTL_RUNTIME_TRAINER_TRAINER_H_

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "runtime/trainer/config.h"
#include "runtime/worker/communicator.h"
#include "runtime/worker/session.h"

namespace trainctl {

struct TrainerOptions {
  // Path of the checkpoint to resume from; "" = start from the beginning; nullopt = the newest
  // valid one in the checkpoint folder.
  std::optional<std::string> resume_from;
  // No coordinator decides what retention may delete, so the trainer does.
  bool decides_retention = false;
  // Rank 0 appends "step,loss" for every step, the loss with all its digits. Empty: nowhere.
  std::string loss_file;
};

// Collective; blocks until the last step, a stop request or an error. On OK the state is saved (if
// there is a checkpoint folder) and, unless it was stopped, the result is reported.
// RESOURCE_EXHAUSTED on rank 0: a disk was full; all steps are done and reported, but their result
// is lost. All ranks must give the same configuration.
absl::Status Train(const TrainConfig& config, const TrainerOptions& options, Session& session,
                   Communicator& communicator);

}  // namespace trainctl

#endif  // TRAINCTL_RUNTIME_TRAINER_TRAINER_H_
