// Restart now, later or never. Pure.
#ifndef TRAINCTL_LAUNCHER_COORDINATOR_RESTART_POLICY_H_
#define TRAINCTL_LAUNCHER_COORDINATOR_RESTART_POLICY_H_

#include <string>
#include <vector>

#include "launcher/coordinator/journal_record.h"
#include "launcher/coordinator/spec.h"
#include "runtime/base/ids.h"
#include "runtime/base/time.h"

namespace trainctl {

// How an epoch went that ended in a failure.
struct EpochEnd {
  Instant at;
  FailureClass failure_class = FailureClass::kWorker;
  std::string node;      // whose failure it was; empty: no single node's
  Step resume_step{-1};  // the recovery point it started from
  Step last_step;        // newest step any rank reported; 0: none, or the script reports no steps
  Duration ran{0};       // from its formation
  bool found_damage = false;  // it found a checkpoint damaged, so the next starts elsewhere
};

struct RestartDecision {
  bool restart = false;
  Duration delay{0};
  bool mendable = true;  // !restart: whether the same job, started again, might do better
  std::string reason;    // one sentence
};

class RestartPolicy {
 public:
  // Decides, and remembers the end if it is followed by a restart.
  RestartDecision Decide(const JobSpec& spec, const EpochEnd& end);

  struct Blame {
    std::string node;
    bool by_script = false;  // all its failures may be the script's own
    std::string reason;      // one sentence
  };
  // Nodes that failed too often within the window, in the order of their names.
  std::vector<Blame> Blamed(const JobSpec& spec, Instant now) const;
  bool Forgive(const std::string& node);  // false: it was not blamed for anything

  // An end that was followed by a restart in an earlier term.
  void Remember(const EpochEnd& end) { restarts_.push_back(end); }
  // Moves all that is remembered by `offset`, for ends that were remembered by another clock.
  void Shift(Duration offset, Instant now);

 private:
  int SpentOfBudget() const;
  bool StepsAreReported(const EpochEnd& end) const;
  // How many of the newest ends, `end` included, came without progress.
  int EndsWithoutProgress(const EpochEnd& end) const;

  std::vector<EpochEnd> restarts_;
};

}  // namespace trainctl

#endif  // TRAINCTL_LAUNCHER_COORDINATOR_RESTART_POLICY_H_
