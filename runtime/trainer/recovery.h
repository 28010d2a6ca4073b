// Choosing, by all ranks together, the checkpoint that training goes on from.
#ifndef TRAINCTL_RUNTIME_TRAINER_RECOVERY_H_
#define TRAINCTL_RUNTIME_TRAINER_RECOVERY_H_

#include <functional>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "runtime/base/ids.h"
#include "runtime/checkpoint/reader.h"
#include "runtime/worker/communicator.h"

namespace trainctl {

struct RecoveryOptions {
  std::string folder;  // holds the checkpoints
  // The step that the coordinator chose; nullopt: the newest that is valid. `fresh`: none at all.
  std::optional<Step> chosen;
  bool fresh = false;
  // Loads one; DATA_LOSS if it is damaged. Called on every rank with the same step.
  std::function<absl::Status(const FoundCheckpoint&)> load;
  // A damaged one is passed over. Called on one rank.
  std::function<void(Step, absl::string_view reason)> rejected;
};

// Collective. Tries the chosen checkpoint, then older ones, until every rank has loaded the same.
// nullopt: none was left, start from the beginning (what `load` filled is a mixture then). An error
// other than damage on any rank is an error on all.
absl::StatusOr<std::optional<FoundCheckpoint>> Recover(Communicator& communicator,
                                                       const RecoveryOptions& options);

// "…/step-000000200" gives folder and step. INVALID_ARGUMENT: not such a path.
absl::StatusOr<Step> StepOfPath(const std::string& path);

}  // namespace trainctl

#endif  // TRAINCTL_RUNTIME_TRAINER_RECOVERY_H_
