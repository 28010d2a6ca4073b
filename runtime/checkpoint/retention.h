// PURE. Which checkpoints may go.
#ifndef TRAINCTL_RUNTIME_CHECKPOINT_RETENTION_H_
#define TRAINCTL_RUNTIME_CHECKPOINT_RETENTION_H_

#include <optional>
#include <string>
#include <vector>

#include "runtime/base/ids.h"

namespace trainctl {

struct RetentionDecision {
  std::vector<Step> may_delete;  // ascending
  std::string reason;            // empty if nothing may go
};

// Keeps the newest `keep` of `committed` and `in_use` (somebody may be loading it), whatever its
// age. keep = 0 keeps all. The order of `committed` does not matter.
RetentionDecision DecideRetention(std::vector<Step> committed, int keep,
                                  std::optional<Step> in_use);

}  // namespace trainctl

#endif  // TRAINCTL_RUNTIME_CHECKPOINT_RETENTION_H_
