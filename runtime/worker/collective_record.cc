#include "runtime/worker/collective_record.h"

#include <atomic>

#include "runtime/base/clock.h"

namespace trainctl {
namespace {

// Odd while the entry changes; readers in other processes read again if it was odd or moved.
class EntryLock {
 public:
  explicit EntryLock(CollectiveRecord* record) : record_(record) {
    const uint32_t value = record_->lock.load(std::memory_order_relaxed);
    // Acquire keeps the entry's new values behind it; a fence would do, but TSan knows none.
    record_->lock.exchange(value | 1, std::memory_order_acq_rel);
  }
  ~EntryLock() {
    record_->lock.store(record_->lock.load(std::memory_order_relaxed) + 1,
                        std::memory_order_release);
  }

 private:
  CollectiveRecord* record_;
};

}  // namespace

CollectiveScope::CollectiveScope(WorkerPage* page, CollectiveOp op, uint64_t bytes,
                                 ElementType type, int bucket) {
  const uint64_t written = page->collectives.load(std::memory_order_relaxed);
  record_ = &page->ring[written % kCollectiveRingSize];
  sequence_ = written + 1;
  {
    EntryLock lock(record_);
    record_->op = static_cast<uint32_t>(op);
    record_->sequence = sequence_;
    record_->bytes = bytes;
    record_->dtype = static_cast<uint32_t>(type);
    record_->bucket = bucket;
    record_->start_ns = Now().ns;
    record_->end_ns = 0;
  }
  page->collectives.store(sequence_, std::memory_order_release);
}

CollectiveScope::~CollectiveScope() {
  if (open_) return;
  EntryLock lock(record_);
  record_->end_ns = Now().ns;
}

}  // namespace trainctl
