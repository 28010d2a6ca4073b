// What GPUs tell of their errors, as evidence of why workers end, and as a reason to end them.
#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "launcher/coordinator/coordinator_state.h"

namespace trainctl {
namespace {

constexpr size_t kMostFaults = 64;  // of one epoch; a broken GPU may tell without end

}  // namespace

void CoordinatorState::On(const GpuFaulted& event) {
  std::vector<GpuFaulted>& faults = epoch_->gpu_faults;
  const bool known = std::any_of(faults.begin(), faults.end(), [&](const GpuFaulted& fault) {
    return fault.node == event.node && fault.text == event.text;
  });
  if (known || faults.size() >= kMostFaults) return;
  faults.push_back(event);
  Say(Announce::Level::kWarning, absl::StrCat(event.node, ": ", event.text));
  if (!event.unfit || !members_.Find(event.node)) return;
  members_.MarkUnfit(event.node, event.text);
  if (!Live()) return;
  Failure failure;
  failure.node = event.node;
  failure.epoch = epoch();
  failure.exit.kind = WorkerExit::Kind::kLost;
  Condemn(WithGpuFaults(std::move(failure)));
}

// A GPU that is broken explains the ends of all workers; an error that the program made on its GPU
// is told beside that worker's own.
Failure CoordinatorState::WithGpuFaults(Failure failure) const {
  for (const GpuFaulted& fault : epoch_->gpu_faults) {
    if (!fault.hardware || failure.failure_class == FailureClass::kHardware) continue;
    if (!fault.unfit && fault.node != failure.node) continue;
    failure.failure_class = FailureClass::kHardware;
    failure.node = fault.node;
    failure.reason = absl::StrCat(fault.text, ", on ", fault.node,
                                  failure.reason.empty() ? "" : "; ", failure.reason);
    return failure;
  }
  for (const GpuFaulted& fault : epoch_->gpu_faults) {
    const bool told = absl::StrContains(failure.reason, fault.text);
    if (fault.hardware || told || fault.node != failure.node || failure.rank < 0) continue;
    for (const NodeShare& share : epoch_->formed.nodes) {
      const bool its = share.node == fault.node && fault.local_rank >= 0 &&
                       share.first_rank + fault.local_rank == failure.rank;
      if (its) absl::StrAppend(&failure.reason, "; ", fault.text);
    }
  }
  return failure;
}

}  // namespace trainctl
