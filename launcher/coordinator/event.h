// What the coordinator is told. Values only; the driver makes them from messages and timers.
#ifndef TRAINCTL_LAUNCHER_COORDINATOR_EVENT_H_
#define TRAINCTL_LAUNCHER_COORDINATOR_EVENT_H_

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "runtime/base/ids.h"
#include "runtime/base/time.h"

namespace trainctl {

// How a worker ended.
struct WorkerExit {
  enum class Kind { kExited, kSignaled, kSpawnFailed, kLost };
  Kind kind = Kind::kExited;
  int code = 0;  // exit code, signal number, or errno of the failed spawn
  bool core = false;
  bool by_us = false;       // by a signal of the supervisor itself: a victim, never the culprit
  int64_t exit_ns = 0;      // CLOCK_BOOTTIME of its node
  int64_t wall_ns = 0;      // CLOCK_REALTIME, for the report
  std::string message;      // spawn failure; by_us: because of what
  std::string output_tail;  // last lines of its stderr
  std::string error_json;   // its error.json, empty if none
};

struct ShardValue {
  int rank = 0;
  std::string file;
  uint64_t length = 0;
  std::string digest;
};

struct WorkerState {
  int rank = 0;
  int local_rank = 0;
  int pid = 0;
  bool running = false;
  WorkerExit exit;  // meaningful if !running
};

// Where other nodes may reach a node: a literal address, used as given.
struct NodeAddress {
  std::string interface;  // "eth0"; may be empty
  std::string address;    // "10.0.0.1", "fe80::1", "127.0.0.1" for a job on one node
};

// The full state of a node, first on every Join stream; whatever happened while nobody listened is
// in here. Of two streams under one name the driver keeps both until it has performed the batch
// that follows: RefuseNode ends the new one; without it the old one is replaced.
struct NodeJoined {
  std::string node;  // unique name within the job
  Incarnation incarnation;
  std::string machine;  // differs between machines, survives a daemon; empty: not known
  std::vector<NodeAddress> addresses;  // the one to prefer first; at least one
  // Path of switches from the outermost, such as SLURM_TOPOLOGY_ADDR's "s0.s1.node7"; may be empty.
  std::string topology;
  int node_rank = -1;  // asked for by --node-rank; -1: any
  int cores = 1;
  int slots = 1;          // workers it can take
  std::string unfit;      // why it can take none; empty: it can
  int reserved_port = 0;  // held for the next epoch's MASTER_PORT
  Term term;              // newest its shim has seen; 0 = none
  Epoch epoch{-1};        // its shim's epoch; -1 = never had one
  bool gone = true;       // no descendant of that epoch is left
  std::vector<WorkerState> workers;
};
// The stream broke; the node may come back within its lease. Not sent for a stream that a newer
// Join of the same node has replaced.
struct NodeLeft {
  std::string node;
  Incarnation incarnation;
  std::string reason;
};
struct LeaseRequested {
  std::string node;
  Incarnation incarnation;
  uint64_t request_id = 0;
};
struct WorkersStarted {  // every worker of this node is spawned
  std::string node;
  Epoch epoch;
  int reserved_port = 0;  // for the epoch after
  std::vector<WorkerState> workers;
};
struct WorkerExited {
  std::string node;
  Epoch epoch;
  int rank = 0;
  WorkerExit exit;
};
struct NodeEpochGone {  // every descendant of that epoch's workers on this node is gone
  std::string node;
  Epoch epoch;
};
struct StepReached {  // rank 0's page
  Epoch epoch;
  Step step;
  Step total;  // 0 = unknown
};
struct ShardPrepared {
  Epoch epoch;
  Step step;
  ShardValue shard;
};
struct CheckpointPublished {
  Epoch epoch;
  Step step;
};
struct CheckpointRejected {  // found damaged at load
  Epoch epoch;
  Step step;
  std::string reason;
};
struct AddressReached {
  std::string address;  // one of the targets
  std::string from;     // the node's own address on that connection; empty: not known
};
// Answer to ProbeAddress: all targets that were reached.
struct AddressesReached {
  std::string node;
  uint64_t probe = 0;
  std::vector<AddressReached> reached;
};
struct HangSuspected {  // by the node, from the worker's page, its silence or its being stopped
  std::string node;
  Epoch epoch;
  int rank = 0;
  Step step;           // it has completed
  std::string reason;  // follows "rank N on NODE"
};
struct RankEvidence {  // what a rank was at
  int rank = 0;
  std::string phase;  // "backward"; empty: its program does not say
  Duration in_phase{0};
  Step step;                 // completed
  uint64_t collectives = 0;  // begun in this epoch
  bool in_collective = false;
  bool stopped = false;    // by a signal
  std::string collective;  // the newest: "all-reduce of 4096 bytes"
};
struct WorkersDiagnosed {  // answer to DiagnoseWorkers
  std::string node;
  Epoch epoch;
  std::vector<RankEvidence> ranks;
};
struct NodeUnfit {  // it came to hold what it cannot get rid of
  std::string node;
  Epoch epoch;
  std::string reason;
};
// A GPU told of an error. `text` says which and what to do about it.
struct GpuFaulted {
  std::string node;
  Epoch epoch;
  int local_rank = -1;    // of the worker that has the GPU; -1: not known
  std::string text;       // "GPU3: Xid 79 (GPU has fallen off the bus): reboot the node"
  bool hardware = false;  // the GPU is at fault, and not the program
  bool unfit = false;     // it runs nothing more as it is
};
struct CheckpointsFound {  // answer to FindCheckpoints: valid steps in the folder, ascending
  std::vector<Step> steps;
};
struct StopAsked {
  std::string by;           // "Ctrl-C", "trainctl stop", "SIGTERM to the front end"
  bool checkpoint = false;  // save first, then end
  bool now = false;         // skip the grace
  bool notice = false;      // to a preemptible job: its nodes are wanted back, after the grace
};
// A drained node keeps its place until the next epoch, and gets no workers from then on.
struct DrainAsked {
  std::string node;
  bool drain = true;  // false: undrain, which also forgives it its failures
  std::string by;
};
struct FrontEndsChanged {  // how many front ends watch; 0 starts the orphan time-out
  int count = 0;
};
struct DeadlineReached {};  // next_deadline() has passed

using Event =
    std::variant<NodeJoined, NodeLeft, LeaseRequested, WorkersStarted, WorkerExited, NodeEpochGone,
                 StepReached, ShardPrepared, CheckpointPublished, CheckpointRejected,
                 AddressesReached, HangSuspected, WorkersDiagnosed, NodeUnfit, GpuFaulted,
                 CheckpointsFound, StopAsked, DrainAsked, FrontEndsChanged, DeadlineReached>;

}  // namespace trainctl

#endif  // TRAINCTL_LAUNCHER_COORDINATOR_EVENT_H_
