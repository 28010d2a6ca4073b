// One entry of the worker page's ring of collectives, from start to end.
#ifndef TRAINCTL_RUNTIME_WORKER_COLLECTIVE_RECORD_H_
#define TRAINCTL_RUNTIME_WORKER_COLLECTIVE_RECORD_H_

#include <cstdint>

#include "runtime/local/page.h"

namespace trainctl {

enum class ElementType : uint32_t { kBytes = 0, kFloat32 = 1, kFloat64 = 2 };

// Writes the start when made, the end when destroyed. One at a time for each page.
class CollectiveScope {
 public:
  CollectiveScope(WorkerPage* page, CollectiveOp op, uint64_t bytes, ElementType type, int bucket);
  ~CollectiveScope();
  CollectiveScope(const CollectiveScope&) = delete;
  CollectiveScope& operator=(const CollectiveScope&) = delete;

  uint64_t sequence() const { return sequence_; }
  // The collective failed: the entry stays open, so that a reader sees what it was blocked in.
  void LeaveOpen() { open_ = true; }

 private:
  CollectiveRecord* record_;
  uint64_t sequence_;
  bool open_ = false;
};

}  // namespace trainctl

#endif  // TRAINCTL_RUNTIME_WORKER_COLLECTIVE_RECORD_H_
