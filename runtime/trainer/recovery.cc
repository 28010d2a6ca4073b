#include "runtime/trainer/recovery.h"

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"

namespace trainctl {
namespace {

enum Outcome : int32_t { kLoaded = 0, kDamaged = 1, kFailed = 2 };

Outcome OutcomeOf(const absl::Status& status) {
  if (status.ok()) return kLoaded;
  return absl::IsDataLoss(status) ? kDamaged : kFailed;
}

// On rank 0: the newest valid checkpoint below `limit`, -1 if none. Damaged ones are told.
absl::StatusOr<int64_t> NewestBelow(const RecoveryOptions& options, std::optional<Step> limit) {
  if (limit.has_value()) limit->value -= 1;
  ASSIGN_OR_RETURN(const CheckpointSearch search, NewestValid(options.folder, limit));
  for (const RejectedCheckpoint& bad : search.rejected) options.rejected(bad.step, bad.reason);
  return search.found.has_value() ? search.found->manifest.step.value : -1;
}

absl::Status TryToLoad(const RecoveryOptions& options, Step step,
                       std::optional<FoundCheckpoint>* found) {
  ASSIGN_OR_RETURN(*found, OpenCheckpoint(options.folder, step));
  return options.load(**found);
}

}  // namespace

absl::StatusOr<std::optional<FoundCheckpoint>> Recover(Communicator& communicator,
                                                       const RecoveryOptions& options) {
  if (options.fresh) return std::nullopt;
  int64_t candidate = -1;
  absl::Status search_error;
  const auto search = [&](std::optional<Step> limit) {
    if (communicator.rank() != 0) return;
    const absl::StatusOr<int64_t> found = NewestBelow(options, limit);
    search_error = found.status();
    candidate = found.ok() ? *found : -1;
  };
  if (options.chosen.has_value()) {
    candidate = options.chosen->value;
  } else {
    search(std::nullopt);
  }
  for (;;) {
    RETURN_IF_ERROR(communicator.Broadcast(&candidate, sizeof(candidate), 0));
    std::optional<FoundCheckpoint> found;
    const absl::Status status =
        candidate < 0 ? search_error : TryToLoad(options, Step(candidate), &found);
    const int32_t mine = OutcomeOf(status);
    std::vector<int32_t> all(static_cast<size_t>(communicator.size()));
    RETURN_IF_ERROR(communicator.AllGather(&mine, all.data(), sizeof(mine)));
    if (const auto failed = std::find(all.begin(), all.end(), kFailed); failed != all.end()) {
      if (!status.ok()) return status;
      return absl::FailedPreconditionError(absl::StrCat("load the checkpoint of step ", candidate,
                                                        ": rank ", failed - all.begin(),
                                                        " failed, its message says why"));
    }
    if (candidate < 0) return std::nullopt;
    const auto damaged = std::find(all.begin(), all.end(), kDamaged);
    if (damaged == all.end()) return found;
    if (damaged - all.begin() == communicator.rank()) {
      options.rejected(Step(candidate), status.message());
    }
    search(Step(candidate));
  }
}

absl::StatusOr<Step> StepOfPath(const std::string& path) {
  const std::string name = path.substr(path.rfind('/') + 1);
  const std::optional<Step> step = ParseStepFolderName(name);
  if (!step.has_value()) {
    return absl::InvalidArgumentError(
        absl::StrCat("TRAINCTL_RESUME_FROM=", path, " is not the path of a checkpoint"));
  }
  return *step;
}

}  // namespace trainctl
