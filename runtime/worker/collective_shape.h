// What a rank takes the next collective to be. Ranks tell each other before they read each other's
// data: a program that calls collectives unevenly gets an error that says so.
#ifndef TRAINCTL_RUNTIME_WORKER_COLLECTIVE_SHAPE_H_
#define TRAINCTL_RUNTIME_WORKER_COLLECTIVE_SHAPE_H_

#include <cstdint>

#include "absl/status/status.h"
#include "runtime/local/page.h"
#include "runtime/worker/collective_record.h"

namespace trainctl {

// Same layout in every process of a job: it travels as it lies in memory.
struct CollectiveShape {
  uint64_t number = 0;  // of this communicator's collectives, from 1
  uint64_t bytes = 0;
  CollectiveOp op = CollectiveOp::kBarrier;
  ElementType type = ElementType::kBytes;
  bool operator==(const CollectiveShape&) const = default;
};

// INVALID_ARGUMENT names both ranks and what each of them calls, if that differs.
absl::Status CompareShapes(int rank, const CollectiveShape& own, int peer,
                           const CollectiveShape& theirs);

}  // namespace trainctl

#endif  // TRAINCTL_RUNTIME_WORKER_COLLECTIVE_SHAPE_H_
