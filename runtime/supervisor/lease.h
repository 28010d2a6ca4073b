// PURE: until when this node may run workers. A lease is the answer to our own request and counts
// from the moment the request was sent, so no delay on the way can make it longer.
#ifndef TRAINCTL_RUNTIME_SUPERVISOR_LEASE_H_
#define TRAINCTL_RUNTIME_SUPERVISOR_LEASE_H_

#include <cstdint>
#include <map>
#include <optional>

#include "runtime/base/time.h"

namespace trainctl {

class Lease {
 public:
  // A new epoch begins with one full lease, counted like all others from when it was asked for.
  void Begin(Instant asked, Duration length);
  void End();  // no workers are left

  // The id of a request that is sent at `now`.
  uint64_t Request(Instant now);
  // Returns whether the lease grew. Unknown and old ids, and lengths that are not positive, change
  // nothing.
  bool Grant(uint64_t request_id, Duration length);

  Instant until() const { return until_; }  // kNever: no lease runs

 private:
  Instant until_ = kNever;
  uint64_t last_id_ = 0;
  std::map<uint64_t, Instant> sent_;  // unanswered, the newest few
};

}  // namespace trainctl

#endif  // TRAINCTL_RUNTIME_SUPERVISOR_LEASE_H_
