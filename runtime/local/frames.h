// Messages on the two unix sockets of a node: daemon <-> supervisor and supervisor <-> worker.
// Wire: u32 length of what follows, u16 type, payload (see codec.h; integers little-endian).
// The first frame on a connection is a Hello from the side that dialled; it carries kFrameVersion.
// A side accepts versions from kOldestFrameVersion to its own. A frame above kMaxFrameBytes, an
// unknown type or a payload that does not decode is INVALID_ARGUMENT and ends the connection.
#ifndef TRAINCTL_RUNTIME_LOCAL_FRAMES_H_
#define TRAINCTL_RUNTIME_LOCAL_FRAMES_H_

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace trainctl::frame {

inline constexpr uint32_t kFrameVersion = 4;
inline constexpr uint32_t kOldestFrameVersion = 4;  // 3 continued no OutputFrom
inline constexpr uint32_t kMaxFrameBytes = 64u << 20;

// How a worker ended. A value, not a Status.
struct Exit {
  enum class Kind : uint8_t { kExited = 0, kSignaled, kSpawnFailed, kLost };
  Kind kind = Kind::kExited;
  int32_t code = 0;  // exit code, signal number, or errno of the failed spawn
  bool core = false;
  // It ended by a signal that the supervisor had sent, or by itself after it was told to end.
  bool by_us = false;
  std::string message;  // spawn failure: what was being done, to what; by_us: because of what
};

struct Shard {  // one file of a checkpoint
  int32_t rank = 0;
  std::string file;
  uint64_t length = 0;
  std::string digest;  // "xxh3-128:<32 hex digits>"
};

// ---- either direction, first on every connection
struct Hello {
  uint32_t version = kFrameVersion;
  int64_t incarnation = 0;  // daemon: its incarnation; worker: its epoch
  int32_t rank = -1;        // worker: its rank; daemon: -1
};

// ---- daemon -> supervisor
struct Launch {  // one worker
  int32_t rank = 0;
  int32_t local_rank = 0;
  std::vector<std::string>
      argv;                      // argv[0] is an absolute path or is looked up in the worker's PATH
  std::vector<std::string> env;  // "NAME=value", in addition to StartEpoch::env, winning over it
  std::vector<int32_t> cpus = {};  // on which it may run; empty: those of the shim
  int32_t numa = -1;               // the NUMA node whose memory it prefers; -1: as the shim
};
struct StartEpoch {
  int64_t term = 0;
  int64_t epoch = 0;
  int32_t world_size = 0;
  std::string cwd;
  std::string log_folder;  // workers' output: LOG_FOLDER/EPOCH/RANK/{stdout,stderr}.log
  // Of all workers here together, with what they start; 0: none.
  uint64_t memory_limit = 0;  // bytes
  uint64_t process_limit = 0;
  uint64_t log_quota = 0;        // bytes of logs here, of all epochs together; 0: no limit
  int64_t hang_timeout_ns = 0;   // 0: chosen from the length of steps; < 0: not looked for
  std::vector<std::string> env;  // common to all workers; complete, nothing is inherited
  std::vector<Launch> workers;
};
struct StopEpoch {
  int64_t term = 0;
  int64_t epoch = 0;
  int64_t grace_ns = 0;  // a signal now, SIGKILL after; 0: SIGKILL now
  bool abort = false;    // SIGABRT instead of SIGTERM: Python prints where each thread is
};
struct LeaseAnswer {
  uint64_t request_id = 0;
  int64_t term = 0;
  bool granted = false;  // false: condemned; SIGKILL at once
  int64_t lease_ns = 0;  // counted from the moment the request was sent
};
struct PageRequest {  // sets the flags in every worker's page
  int64_t epoch = 0;
  bool stop = false;
  bool checkpoint = false;
};
struct SignalWorkers {
  int64_t epoch = 0;
  int32_t signo = 0;
  std::vector<int32_t> ranks;  // empty: all
};
// Asks for the bytes [offset, limit) of one log, as they come; replaces an earlier request for the
// same log, or continues it if that ends at `offset`. Nothing is forwarded unasked; a new daemon
// asks anew. It may come before the worker has written anything, or after its epoch.
struct OutputFrom {
  int64_t epoch = 0;
  int32_t rank = 0;
  uint8_t stream = 1;  // 1 stdout, 2 stderr
  uint64_t offset = 0;
  uint64_t limit = 0;
};
// Write down what each worker of the epoch is at, without a signal -> WorkersDiagnosed.
struct DiagnoseWorkers {
  int64_t epoch = 0;
};
struct Release {};  // kill what is left, then quit
struct Pong {};     // answer to Ping, by the daemon's loop itself

// ---- daemon -> supervisor -> worker
struct ExchangeDone {  // answer to Exchange
  int64_t epoch = 0;
  std::string name;
  std::vector<std::string> values;  // by rank; empty if error is not
  std::string error;                // names the ranks that are missing
};
struct CommitGranted {  // to rank 0 only: write the manifest and publish
  int64_t epoch = 0;
  int64_t term = 0;
  int64_t step = 0;
  std::vector<Shard> shards;        // by rank
  std::vector<int64_t> may_delete;  // older steps that retention no longer keeps
};

// ---- worker -> supervisor -> daemon
struct Exchange {  // every rank publishes `value`; all get all values back
  int64_t epoch = 0;
  int32_t rank = 0;
  std::string name;  // unique within the epoch
  std::string value;
  int64_t timeout_ns = 0;
};
struct ShardPrepared {  // this rank's shard is written and synced
  int64_t epoch = 0;
  int64_t step = 0;
  Shard shard;
};
struct CheckpointPublished {  // rank 0 renamed the folder and synced its parent
  int64_t epoch = 0;
  int64_t step = 0;
};
struct CheckpointRejected {  // a checkpoint found damaged at load
  int64_t epoch = 0;
  int64_t step = 0;
  std::string reason;
};
struct Metric {  // last value by name goes into the report
  int64_t epoch = 0;
  int32_t rank = 0;
  std::string name;
  double value = 0;
};
struct Note {  // one line for the user, shown once by the front end
  int64_t epoch = 0;
  int32_t rank = 0;  // -1: it is about the node
  std::string text;
};

// ---- supervisor -> daemon
struct SlotState {
  int32_t rank = 0;
  int32_t local_rank = 0;
  int32_t pid = 0;
  bool running = false;
  // Meaningful if !running; as in WorkerExited, which says the same of a worker that ends later.
  Exit exit;
  int64_t exit_ns = 0;
  std::string output_tail;
  std::string error_json;
};
struct ShimState {  // the full state, first after the daemon's Hello
  uint32_t version = kFrameVersion;
  std::string job_id;
  int64_t term = 0;
  int64_t epoch = -1;          // -1: never had one
  bool gone = true;            // no descendant of that epoch is left
  std::string unkillable;      // see Unkillable; empty: none
  uint16_t reserved_port = 0;  // held for the next epoch's MASTER_PORT
  std::vector<SlotState> slots;
  std::vector<Exchange> exchanges;  // published by workers of the current epoch
};
struct EpochStarted {  // all workers of this node are spawned; precedes every WorkerExited of them
  int64_t epoch = 0;
  uint16_t reserved_port = 0;  // for the epoch after this one
  std::vector<SlotState> slots;
};
struct WorkerExited {
  int64_t epoch = 0;
  int32_t rank = 0;
  Exit exit;
  int64_t exit_ns = 0;      // CLOCK_BOOTTIME, read when it was reaped
  std::string output_tail;  // last 20 lines of its stderr, at most 8 KiB
  std::string error_json;   // contents of its error.json, at most 64 KiB, empty if none
};
// Every descendant of every worker of that epoch is gone. Follows the output that was asked for.
struct EpochGone {
  int64_t epoch = 0;
};
struct HangSuspected {
  int64_t epoch = 0;
  int32_t rank = 0;
  uint64_t step = 0;   // it has completed
  std::string reason;  // follows "rank N"
};
struct RankEvidence {
  int32_t rank = 0;
  uint32_t phase = 0;        // WorkerPhase; 0: it writes no page
  int64_t phase_ns = 0;      // how long it has been in it
  uint64_t step = 0;         // completed
  uint64_t collectives = 0;  // begun in this epoch
  bool in_collective = false;
  bool stopped = false;    // by a signal
  std::string collective;  // the newest: "all-reduce of 4096 bytes"
};
struct WorkersDiagnosed {  // LOG_FOLDER/EPOCH/RANK/hang.txt is written for each
  int64_t epoch = 0;
  std::vector<RankEvidence> ranks;
};
// SIGKILL was sent and these are still there: "pid 812 (python3), state D, in nfs_wait". EpochGone
// follows if they end after all.
struct Unkillable {
  int64_t epoch = 0;
  std::string which;
};
struct Output {  // answer to OutputFrom, in order; empty `bytes`: the log ends at `offset` for good
  int64_t epoch = 0;
  int32_t rank = 0;
  uint8_t stream = 1;
  uint64_t offset = 0;   // of bytes[0] in the whole log
  uint64_t skipped = 0;  // so many bytes before `offset` are gone; with that, no bytes mean no end
  std::string bytes;
};
struct Progress {  // from the page, when it changed, at most 5 times a second
  int64_t epoch = 0;
  int32_t rank = 0;
  uint64_t step = 0;
  uint64_t total_steps = 0;
  uint64_t samples = 0;
  double loss = 0;
  double data_epoch = 0;
  uint32_t phase = 0;
  uint32_t resumed = 0;
  int64_t first_step_ns = 0;
};
struct LeaseRequest {
  uint64_t request_id = 0;
};
struct Ping {};  // sent when nothing has come for long

using Frame =
    std::variant<Hello, StartEpoch, StopEpoch, LeaseAnswer, PageRequest, SignalWorkers, OutputFrom,
                 Release, ExchangeDone, CommitGranted, Exchange, ShardPrepared, CheckpointPublished,
                 CheckpointRejected, Metric, Note, ShimState, EpochStarted, WorkerExited, EpochGone,
                 Output, Progress, LeaseRequest, Unkillable, DiagnoseWorkers, HangSuspected,
                 WorkersDiagnosed, Ping, Pong>;

// The bytes of one frame, length included.
std::string Encode(const Frame& frame);

// Splits a byte stream into frames. Not thread-safe. After an error every call returns it again.
class Decoder {
 public:
  void Feed(absl::string_view bytes) { buffer_.append(bytes.data(), bytes.size()); }
  // The next whole frame; nullopt if more bytes are needed.
  absl::StatusOr<std::optional<Frame>> Next();

 private:
  std::nullopt_t NeedMore();

  std::string buffer_;
  size_t consumed_ = 0;
};

}  // namespace trainctl::frame

#endif  // TRAINCTL_RUNTIME_LOCAL_FRAMES_H_
