// Decides which gradients travel together. PURE: the same arguments give the same plan.
#ifndef TRAINCTL_RUNTIME_WORKER_BUCKET_PLAN_H_
#define TRAINCTL_RUNTIME_WORKER_BUCKET_PLAN_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace trainctl {

// What a short probe found between the workers of this job.
struct LinkMeasurement {
  double latency_seconds = 0;   // one small all-reduce
  double bytes_per_second = 0;  // bytes that one rank sends in a large one, per second
};

struct BucketPlan {
  LinkMeasurement link;
  double step_seconds = 0;  // of the first step; 0: not known yet
  int64_t cap_bytes = 0;
  int64_t last_cap_bytes = 0;
  bool final = false;  // made from the ready order of a backward; never changes again
  // Parameters by bucket, in the order of launch. A tensor is never split, so a bucket of one
  // tensor may exceed the cap.
  std::vector<std::vector<int>> buckets;
  std::string reason;  // one sentence for the user
};

// `bytes` by parameter in registration order; `order` holds every parameter once, earliest ready
// first. cap: moving a full bucket takes at least ten latencies, so that latency costs at most a
// tenth. last_cap: nothing is left to hide the last bucket behind, so it takes at most 2 % of a
// step, but never less than one latency is worth. `step_seconds` = 0 (not known) makes it one
// latency's worth. A bucket that is not worth one latency takes the next tensor too. REQUIRES:
// world_size >= 1.
BucketPlan PlanBuckets(const std::vector<int64_t>& bytes, const std::vector<int>& order,
                       int world_size, LinkMeasurement link, double step_seconds);

// {"version": 1, "cap_bytes": …, "buckets": [[…], …], …}. INVALID_ARGUMENT says what is wrong:
// not such a text, or buckets that do not hold each of `parameters` parameters exactly once.
std::string PlanToJson(const BucketPlan& plan);
absl::StatusOr<BucketPlan> PlanFromJson(absl::string_view json, int parameters);

}  // namespace trainctl

#endif  // TRAINCTL_RUNTIME_WORKER_BUCKET_PLAN_H_
