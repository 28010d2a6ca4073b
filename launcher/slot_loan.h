// What a task that a scheduler started lends to the first task on its node: the processors and GPUs
// that the scheduler bound it to. Pure.
#ifndef TRAINCTL_LAUNCHER_SLOT_LOAN_H_
#define TRAINCTL_LAUNCHER_SLOT_LOAN_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace trainctl {

struct SlotLoan {
  int local_id = 0;                 // of the task; 0: the first task's own
  std::vector<int> cpus;            // that it may run on
  std::optional<std::string> gpus;  // its CUDA_VISIBLE_DEVICES; nullopt: unset
};

// One line for each field. Parsing: INVALID_ARGUMENT for anything that formatting does not make.
std::string FormatSlotLoan(const SlotLoan& loan);
absl::StatusOr<SlotLoan> ParseSlotLoan(absl::string_view text);

// All that the tasks of a node have.
struct JoinedSlots {
  std::vector<int> cpus;  // ascending
  // CUDA_VISIBLE_DEVICES, in the order of the tasks, so that the device of a task's number is its
  // own; nullopt: no task has it set.
  std::optional<std::string> gpus;
};
// `gpus_on_node`: of this node that the scheduler gave to the step; 0: not told.
// FAILED_PRECONDITION: the tasks call different GPUs by one number, as where each is confined to
// its own, so that no process can use them all.
absl::StatusOr<JoinedSlots> JoinSlots(std::vector<SlotLoan> loans, int gpus_on_node);

}  // namespace trainctl

#endif  // TRAINCTL_LAUNCHER_SLOT_LOAN_H_
