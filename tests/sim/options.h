// What a simulation is asked to do.
#ifndef TRAINCTL_TESTS_SIM_OPTIONS_H_
#define TRAINCTL_TESTS_SIM_OPTIONS_H_

#include <cstdint>
#include <optional>

#include "launcher/coordinator/coordinator.h"
#include "runtime/base/time.h"

namespace trainctl::sim {

// Something that is made wrong on purpose, outside the code under test, to prove that a checker
// sees it.
enum class Mutation {
  kNone,
  kActBeforeDurable,  // actions are performed before their records are written
  kLoseSyncedTail,    // a disk forgets, when the coordinator dies, what it had synced
  kLeaseNeverEnds,    // the keeper does not act when the lease is over
  kStartBesideOld,    // a shim starts workers of an older epoch, too
  kSecondStopKills,   // a shim that is told twice to stop does not wait for the grace
  kNeverReap,         // a supervisor forgets to wait for its children
  kSameRanks,         // two workers are given one rank
  kMoveRanks,         // nodes that stay in the job get each other's ranks
  kInventCheckpoint,  // the folder's listing shows a step that is not there
  kHideCheckpoints,   // the folder's listing is empty
  kDeleteTooMuch,     // rank 0 deletes the checkpoint that it has just published
  kPublishUngranted,  // rank 0 publishes without a grant
  kHearOldTerms,      // shims obey coordinators of older terms
  kForgetFailures,    // a coordinator that is started again does not know which epochs failed
  kForgetEnd,         // nor that the job is over
  kForgetEpoch,       // replay does not see the newest epoch
  kForgetNobody,      // every stranger that ever came is remembered
  kSayNothing,        // what people are told is empty
  kNeverDialAgain,    // daemons do not come back after a stream broke
  kUnseeded,          // chance that does not come from the seed
  kCrash,             // the coordinator aborts
};
inline constexpr int kMutations = 22;
const char* MutationName(Mutation mutation);  // "act-before-durable"

// Exactly one thing goes wrong: on all these nodes, as soon as the job is in this phase.
struct Strike {
  enum class Kind { kPower, kDaemon, kShim, kLink, kMachine, kWorker };
  Kind kind = Kind::kPower;
  JobPhase phase = JobPhase::kRunning;
  unsigned nodes = 1;  // bit i: node i
};
inline constexpr int kStrikeKinds = 6;

struct Options {
  uint64_t seed = 1;
  int nodes = 16;
  int slots = 8;
  Duration duration = seconds(300);  // with faults, before they heal
  bool faults = true;
  int rare = 1;  // faults come so many times less often; above 1, workers also save every 5 minutes
  Mutation mutation = Mutation::kNone;
  bool keep_trace = false;
  // Instead of what the seed would say, where it is there.
  std::optional<Strike> strike;  // REQUIRES: !faults
  std::optional<int> min_nodes;
  std::optional<int> max_restarts;
};

}  // namespace trainctl::sim

#endif  // TRAINCTL_TESTS_SIM_OPTIONS_H_
