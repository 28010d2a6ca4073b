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

size_t BytesOf(ElementType type) {
  switch (type) {
    case ElementType::kBytes:
      return 1;
    case ElementType::kFloat16:
    case ElementType::kBFloat16:
      return 2;
    case ElementType::kFloat32:
      return 4;
    case ElementType::kFloat64:
      return 8;
  }
  return 1;
}

uint64_t BeginCollective(WorkerPage* page, CollectiveOp op, uint64_t bytes, ElementType type,
                         int bucket) {
  const uint64_t written = page->collectives.load(std::memory_order_relaxed);
  CollectiveRecord* record = &page->ring[written % kCollectiveRingSize];
  {
    EntryLock lock(record);
    record->op = static_cast<uint32_t>(op);
    record->sequence = written + 1;
    record->bytes = bytes;
    record->dtype = static_cast<uint32_t>(type);
    record->bucket = bucket;
    record->start_ns = Now().ns;
    record->end_ns = 0;
  }
  page->collectives.store(written + 1, std::memory_order_release);
  return written + 1;
}

void EndCollective(WorkerPage* page, uint64_t sequence) {
  CollectiveRecord* record = &page->ring[(sequence - 1) % kCollectiveRingSize];
  if (record->sequence != sequence) return;
  EntryLock lock(record);
  record->end_ns = Now().ns;
}

CollectiveScope::CollectiveScope(WorkerPage* page, CollectiveOp op, uint64_t bytes,
                                 ElementType type, int bucket)
    : page_(page), sequence_(BeginCollective(page, op, bytes, type, bucket)) {}

CollectiveScope::~CollectiveScope() {
  if (!open_) EndCollective(page_, sequence_);
}

}  // namespace trainctl
