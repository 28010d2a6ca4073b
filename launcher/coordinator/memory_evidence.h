// What says that memory ran out: the kernel's word about a process that was killed, or what the
// program said at its end. Pure.
#ifndef TRAINCTL_LAUNCHER_COORDINATOR_MEMORY_EVIDENCE_H_
#define TRAINCTL_LAUNCHER_COORDINATOR_MEMORY_EVIDENCE_H_

#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace trainctl {

struct MemoryEvidence {
  bool gpu = false;  // the memory of a GPU, not the machine's
  std::string line;  // that says so
};

// `message`: what the supervisor knows of the kernel. `error`: the program's own last error; empty:
// it told none. `tail`: the end of its stderr. A line of `tail` that is no error itself counts only
// if `error` may follow from it: a program may report a lack of memory and go on.
std::optional<MemoryEvidence> FindMemoryEvidence(absl::string_view message, absl::string_view error,
                                                 absl::string_view tail);

}  // namespace trainctl

#endif  // TRAINCTL_LAUNCHER_COORDINATOR_MEMORY_EVIDENCE_H_
