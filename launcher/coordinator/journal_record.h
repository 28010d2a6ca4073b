// What survives the coordinator. One record per decision that must not be taken twice.
// Encoding: u8 type, then the fields in order with runtime/base/codec.h; the journal adds length
// and checksum (launcher/journal_format.h).
#ifndef TRAINCTL_LAUNCHER_COORDINATOR_JOURNAL_RECORD_H_
#define TRAINCTL_LAUNCHER_COORDINATOR_JOURNAL_RECORD_H_

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "launcher/coordinator/event.h"
#include "runtime/base/ids.h"

namespace trainctl {

// The class of a failure decides whether it counts against the restart budget.
enum class FailureClass : uint8_t {
  kWorker = 0,  // exit code, exception, signal of the script itself
  kUserError,   // never helped by a restart: import error, program missing, usage
  kOutOfMemory,
  kHang,
  kNodeLost,
  kNetwork,
  kDisk,
  kPreempted,
  kInternal,
  kHardware,
  kGpuOutOfMemory,
};
const char* FailureClassName(FailureClass failure_class);  // "worker", "user error", …

struct Failure {
  FailureClass failure_class = FailureClass::kWorker;
  std::string node;
  int rank = -1;  // -1: no single rank
  Epoch epoch;
  WorkerExit exit;
  std::string reason;  // one sentence
};

struct Outcome {
  enum class Kind : uint8_t { kSucceeded = 0, kFailed, kStopped, kPreempted };
  Kind kind = Kind::kSucceeded;
  int exit_status = 0;  // of the front end, as in --help
  std::string reason;
  std::optional<Failure> failure;
};
const char* OutcomeName(Outcome::Kind kind);  // succeeded, failed, stopped, preempted

// A node's place in an epoch: the ranks [first_rank, first_rank + workers).
struct NodeShare {
  std::string node;
  std::string machine;
  std::string address;  // where the others reach it
  int first_rank = 0;
  int workers = 0;
  std::string interface = {};  // that has the address; empty: not known
};

struct RankPlace {
  int rank = 0;
  int local_rank = 0;
  std::string node;
  std::string address;  // of the node
};

struct TermStarted {
  Term term;
};
struct EpochFormed {
  Epoch epoch;
  std::vector<NodeShare> nodes;  // by first_rank, without gaps
  std::string master_address;
  int master_port = 0;
  std::string reason;  // why this epoch exists
  int64_t wall_ns = 0;
  Step resume_step{-1};  // recovery point it starts from; -1 = from the beginning

  int world_size() const {
    return nodes.empty() ? 0 : nodes.back().first_rank + nodes.back().workers;
  }
};
std::vector<RankPlace> RanksOf(const EpochFormed& epoch);

// Some worker of it was started: its number is used up.
struct EpochStarted {
  Epoch epoch;
};
// Its workers are to be stopped. A second one for the same epoch replaces the first: the failure as
// it was judged when all ends of the epoch were known.
struct EpochCondemned {
  Epoch epoch;
  Failure failure;
  int64_t wall_ns = 0;
  Step last_step;  // newest step any rank reported
};
// Its workers are to be stopped, although nothing failed, because the job's nodes are to change.
struct EpochReplaced {
  Epoch epoch;
  std::string reason;
  int64_t wall_ns = 0;
  Step last_step;
};
struct CommitGranted {
  Epoch epoch;
  Step step;
};
struct CheckpointCommitted {
  Epoch epoch;
  Step step;
};
struct CheckpointDropped {
  Step step;
  bool damaged = false;  // never a recovery point again, unless written anew; false: by retention
  std::string reason;
};
struct NodeDrained {
  std::string node;
  bool drained = true;  // false: it may have workers again
  int64_t wall_ns = 0;
};
struct Stopping {
  std::string reason;
  bool checkpoint = false;  // save first, then end
  bool preempted = false;   // the nodes are wanted back
};
struct Finished {
  Outcome outcome;
  int64_t wall_ns = 0;
};
// Its lease ended: nothing of the epoch runs there any more, whatever it is told.
struct NodeLost {
  Epoch epoch;
  std::string node;
  int64_t wall_ns = 0;
};

using JournalRecord = std::variant<TermStarted, EpochFormed, EpochStarted, EpochCondemned,
                                   EpochReplaced, CommitGranted, CheckpointCommitted,
                                   CheckpointDropped, NodeDrained, Stopping, Finished, NodeLost>;

std::string EncodeRecord(const JournalRecord& record);
// DATA_LOSS if the bytes are no record of this version.
absl::StatusOr<JournalRecord> DecodeRecord(absl::string_view bytes);

}  // namespace trainctl

#endif  // TRAINCTL_LAUNCHER_COORDINATOR_JOURNAL_RECORD_H_
