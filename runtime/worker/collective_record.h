// One entry of the worker page's ring of collectives, from start to end.
#ifndef TRAINCTL_RUNTIME_WORKER_COLLECTIVE_RECORD_H_
#define TRAINCTL_RUNTIME_WORKER_COLLECTIVE_RECORD_H_

#include <cstddef>
#include <cstdint>

#include "runtime/local/page.h"

namespace trainctl {

enum class ElementType : uint32_t {
  kBytes = 0,
  kFloat32 = 1,
  kFloat64 = 2,
  kFloat16 = 3,
  kBFloat16 = 4
};
size_t BytesOf(ElementType type);

// For collectives that run beside each other. The end of one whose entry was overwritten since has
// no effect.
uint64_t BeginCollective(WorkerPage* page, CollectiveOp op, uint64_t bytes, ElementType type,
                         int bucket);  // its sequence
void EndCollective(WorkerPage* page, uint64_t sequence);

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
  WorkerPage* page_;
  uint64_t sequence_;
  bool open_ = false;
};

}  // namespace trainctl

#endif  // TRAINCTL_RUNTIME_WORKER_COLLECTIVE_RECORD_H_
