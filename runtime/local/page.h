// The worker page: one memory-mapped memfd per worker, created and kept by the keeper, so that it
// survives the worker. The worker writes the first part, the supervisor the last; nobody locks.
// Every field is a naturally aligned little-endian integer or IEEE double at a fixed offset, so a
// Python program can read and write it with `struct` alone (offsets are static-asserted in
// page.cc).
#ifndef TRAINCTL_RUNTIME_LOCAL_PAGE_H_
#define TRAINCTL_RUNTIME_LOCAL_PAGE_H_

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"

namespace trainctl {

inline constexpr uint32_t kPageMagic = 0x47505254;  // "TRPG"
inline constexpr uint32_t kPageVersion = 1;
inline constexpr int kCollectiveRingSize = 256;

enum class WorkerPhase : uint32_t {
  kNone = 0,
  kInit,
  kData,
  kForward,
  kBackward,
  kCollective,
  kOptimizer,
  kCheckpoint,
  kEvaluate,
  kIdle,
};
const char* WorkerPhaseName(WorkerPhase phase);

enum class CollectiveOp : uint32_t {
  kAllReduce = 1,
  kReduceScatter,
  kAllGather,
  kBroadcast,
  kBarrier
};
const char* CollectiveOpName(CollectiveOp op);  // "all-reduce", …

// One entry of the ring, under a sequence lock: `lock` is odd while the worker writes.
struct CollectiveRecord {
  std::atomic<uint32_t> lock;
  uint32_t op;        // CollectiveOp
  uint64_t sequence;  // from 1 within an epoch
  uint64_t bytes;
  uint32_t dtype;    // 0 = bytes, 1 = float32, 2 = float64, 3 = float16, 4 = bfloat16
  int32_t bucket;    // -1: not a gradient bucket
  int64_t start_ns;  // CLOCK_BOOTTIME
  int64_t end_ns;    // 0 while it runs
};

struct WorkerPage {
  uint32_t magic;
  uint32_t version;
  // Written by the worker.
  std::atomic<uint64_t> step;           // optimizer steps completed
  std::atomic<uint64_t> total_steps;    // 0 = unknown
  std::atomic<uint64_t> samples;        // samples of the whole job consumed so far
  std::atomic<double> loss;             // of the last completed step, mean over the global batch
  std::atomic<double> data_epoch;       // passes over the data, fractional
  std::atomic<uint32_t> phase;          // WorkerPhase
  std::atomic<uint32_t> resumed;        // 1 + step it resumed from, 0 = started fresh
  std::atomic<int64_t> phase_since_ns;  // CLOCK_BOOTTIME
  std::atomic<int64_t> first_step_ns;   // CLOCK_BOOTTIME at the end of this epoch's first step
  std::atomic<uint64_t> gpu_memory_bytes;
  std::atomic<uint64_t> collectives;  // entries ever written; the newest is (collectives-1) % 256
  // Written by the supervisor.
  std::atomic<int64_t> epoch;
  std::atomic<uint32_t> stop_requested;        // finish the step, then exit 0
  std::atomic<uint32_t> checkpoint_requested;  // counts requests
  uint8_t reserved[128];
  CollectiveRecord ring[kCollectiveRingSize];
};

// A mapped page. Movable, unmaps on destruction; the mapping is shared with the other side.
class MappedPage {
 public:
  // Maps an existing page and checks magic, version and size (INVALID_ARGUMENT names what differs).
  static absl::StatusOr<MappedPage> Open(const std::string& path);
  static absl::StatusOr<MappedPage> FromFd(int fd);
  // Makes a new memfd with an initialised page. `*fd` receives the descriptor, owned by the caller.
  static absl::StatusOr<MappedPage> Create(int* fd);

  MappedPage(MappedPage&& other) noexcept;
  MappedPage& operator=(MappedPage&& other) noexcept;
  ~MappedPage();

  WorkerPage* get() const { return page_; }
  WorkerPage* operator->() const { return page_; }
  // Clears everything a worker wrote and sets `epoch`; called before a new worker gets the page.
  void Reset(int64_t epoch);

 private:
  explicit MappedPage(WorkerPage* page) : page_(page) {}
  WorkerPage* page_ = nullptr;
};

}  // namespace trainctl

#endif  // TRAINCTL_RUNTIME_LOCAL_PAGE_H_
