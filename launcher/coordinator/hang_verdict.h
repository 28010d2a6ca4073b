// Which rank hangs, from what every rank was at when one was seen to make no progress. PURE.
#ifndef TRAINCTL_LAUNCHER_COORDINATOR_HANG_VERDICT_H_
#define TRAINCTL_LAUNCHER_COORDINATOR_HANG_VERDICT_H_

#include <string>
#include <vector>

#include "launcher/coordinator/event.h"
#include "launcher/coordinator/journal_record.h"

namespace trainctl {

struct HangSuspicion {
  int rank = 0;
  std::string node;
  Step step;           // it had completed
  std::string reason;  // follows "rank N on NODE"
};

struct HangVerdict {
  int rank = -1;       // -1: no single rank
  std::string reason;  // a sentence
};

// In this order: a rank that is stopped by a signal; ranks that did not enter the collective in
// which others wait; the network, if all wait in the same one; a rank that is behind in steps; the
// one that was suspected. `evidence` may lack ranks whose node did not answer in time.
HangVerdict JudgeHang(const HangSuspicion& suspicion, const std::vector<RankEvidence>& evidence,
                      const std::vector<NodeShare>& nodes);

}  // namespace trainctl

#endif  // TRAINCTL_LAUNCHER_COORDINATOR_HANG_VERDICT_H_
