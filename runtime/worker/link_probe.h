// Measures the link between the workers, once per job.
#ifndef TRAINCTL_RUNTIME_WORKER_LINK_PROBE_H_
#define TRAINCTL_RUNTIME_WORKER_LINK_PROBE_H_

#include "absl/status/statusor.h"
#include "runtime/worker/bucket_plan.h"
#include "runtime/worker/communicator.h"

namespace trainctl {

// Collective; a few milliseconds. All ranks get what rank 0 measured. Zeros for one worker.
absl::StatusOr<LinkMeasurement> ProbeLink(Communicator& communicator);

}  // namespace trainctl

#endif  // TRAINCTL_RUNTIME_WORKER_LINK_PROBE_H_
