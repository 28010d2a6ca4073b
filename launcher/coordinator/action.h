// What the coordinator wants done. Values only; the driver performs them, in order, after the
// batch's records are durable. An action delivered twice has the effect of one.
#ifndef TRAINCTL_LAUNCHER_COORDINATOR_ACTION_H_
#define TRAINCTL_LAUNCHER_COORDINATOR_ACTION_H_

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "launcher/coordinator/event.h"
#include "launcher/coordinator/journal_record.h"
#include "runtime/base/ids.h"
#include "runtime/base/time.h"

namespace trainctl {

struct WorkerLaunch {
  int rank = 0;
  int local_rank = 0;
  std::vector<std::string> argv;
  std::vector<std::string> env;  // "NAME=value", on top of StartWorkers::env
};
struct StartWorkers {
  std::string node;
  Epoch epoch;
  int world_size = 0;
  std::string cwd;
  std::string log_folder;
  Duration hang_timeout{0};  // as in JobSpec, and so are the limits
  uint64_t memory_limit = 0;
  uint64_t process_limit = 0;
  uint64_t log_quota = 0;
  std::vector<std::string> env;  // common to all workers of the node; complete
  std::vector<WorkerLaunch> workers;
};
struct StopWorkers {
  std::string node;
  Epoch epoch;
  Duration grace{0};
  bool abort = false;  // SIGABRT instead of SIGTERM: Python then prints where each thread is
};
struct DiagnoseWorkers {  // write down what each is at -> WorkersDiagnosed
  std::string node;
  Epoch epoch;
};
struct AnswerLease {
  std::string node;
  uint64_t request_id = 0;
  bool granted = false;
  Duration lease{0};
};
struct GrantCommit {  // to rank 0's node
  std::string node;
  Epoch epoch;
  Step step;
  std::vector<ShardValue> shards;  // by rank
  std::vector<Step> may_delete;
};
struct RequestCheckpoint {  // set the flags in every worker's page of this node
  std::string node;
  Epoch epoch;
  bool then_stop = false;
};
// Try to connect to each target; that it is refused there is an answer too: the node is reached.
// -> AddressesReached, within ProbeAddress::patience.
struct ProbeAddress {
  std::string node;
  uint64_t probe = 0;
  struct Target {
    std::string address;
    int port = 0;
  };
  std::vector<Target> targets;
  Duration patience{0};
  std::string machine;  // whose addresses these are; empty: not known
};
// End the Join stream of this life of this node, with the reason; nothing more of it is delivered.
struct RefuseNode {
  std::string node;
  Incarnation incarnation;
  std::string machine;
  std::string reason;
};
struct FindCheckpoints {};  // list valid steps in the checkpoint folder -> CheckpointsFound
struct ReleaseNode {        // its shim may go
  std::string node;
};
struct OpenStore {  // a new epoch's rendezvous store; the old one is closed
  Epoch epoch;
  std::vector<std::string> node_of_rank;
};
struct Announce {  // one line for whoever watches
  enum class Level { kInfo, kWarning, kError };
  Level level = Level::kInfo;
  std::string text;
};
struct FinishJob {  // write the report, tell the front ends, end
  Outcome outcome;
};

using Action = std::variant<StartWorkers, StopWorkers, DiagnoseWorkers, AnswerLease, GrantCommit,
                            RequestCheckpoint, ProbeAddress, RefuseNode, FindCheckpoints,
                            ReleaseNode, OpenStore, Announce, FinishJob>;

// Everything in `persist` is durable before anything in `perform` starts.
struct Batch {
  std::vector<JournalRecord> persist;
  std::vector<Action> perform;
};

}  // namespace trainctl

#endif  // TRAINCTL_LAUNCHER_COORDINATOR_ACTION_H_
