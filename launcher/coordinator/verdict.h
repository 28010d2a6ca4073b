// Who caused a failure and who was a victim; what kind of failure it is. Pure.
#ifndef TRAINCTL_LAUNCHER_COORDINATOR_VERDICT_H_
#define TRAINCTL_LAUNCHER_COORDINATOR_VERDICT_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "launcher/coordinator/event.h"
#include "launcher/coordinator/journal_record.h"
#include "launcher/coordinator/spec.h"

namespace trainctl {

struct RankExit {
  int rank = 0;
  std::string node;
  WorkerExit exit;
};

// What is known of an epoch when its failure is judged.
struct EpochEvidence {
  Epoch epoch;
  std::vector<RankExit> exits;  // in the order in which they were told
  bool stepped = false;         // some rank completed a step beyond the recovery point
  bool found_damage = false;    // it found a checkpoint damaged
  std::vector<NodeShare> nodes;
  bool preemptible = false;  // as in JobSpec
};

bool IsFailure(const WorkerExit& exit);  // all but "exited with 0"

// The culprit of the epoch: of the failures that were not our own doing, one whose output does not
// say that it lost a peer before one that does; on one node the earliest; between nodes, whose
// clocks cannot be compared, the first told. nullopt if no exit is a failure.
std::optional<Failure> JudgeExits(const EpochEvidence& evidence);

// Whether it tells of nothing but the loss of another worker: a node that was lost explains it.
bool IsVictim(const Failure& failure);

Failure JudgeLostNode(Epoch epoch, const std::string& node, absl::string_view why);

// The front end's exit status for a job that failed (CLI.md, "Exit status"). `mendable`: the same
// job, started again, might do better.
int FailedExitStatus(const JobSpec& spec, const Failure& failure, bool mendable);

// What a process that stands for one worker ends with: the worker's own code, 128 + the signal that
// killed it, or `job_status` where we ended it, or nothing is known of it.
int WorkerStatus(const WorkerExit& exit, int job_status);

std::string DescribeExit(const WorkerExit& exit);  // "exited with code 7", "was killed by SIGKILL"

}  // namespace trainctl

#endif  // TRAINCTL_LAUNCHER_COORDINATOR_VERDICT_H_
