// This node's part in a job: what of it is written down, and what follows from it.
#ifndef TRAINCTL_RUNTIME_NODE_PART_H_
#define TRAINCTL_RUNTIME_NODE_PART_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/node.pb.h"
#include "runtime/node/job_runner.h"
#include "runtime/node/wire.h"

namespace trainctl {

// What is true of this machine and this life of its daemon, whatever the job. `name`: empty for the
// machine's own.
NodeFacts ThisNode(const std::string& name);

// INVALID_ARGUMENT names the field of a part that no job can have.
absl::Status CheckPart(const v1::NodePart& part);

// PART_FOLDER/part.pb: for the next daemon, which takes over the part's workers. A power cut ends
// them too, so the file is not synced.
absl::Status SavePart(const v1::NodePart& part);
absl::StatusOr<v1::NodePart> LoadPart(const std::string& folder);

WorkerBinding BindingOf(const v1::NodePart& part);

// Turns the part's wish for GPUs into slots, a binding and what is to be locked. Blocks as long as
// the NVIDIA driver does; thread-safe. FAILED_PRECONDITION: this node is not fit.
absl::Status PlanGpus(v1::NodePart* part);

// A part with a coordinator elsewhere. Reads the files that prove who we are.
absl::StatusOr<JobRunner::Job> JobOf(const v1::NodePart& part);

// `daemon`'s facts, with what the part says instead. `listen`: where the coordinator is reached, as
// far as it is known; empty: the job has one node.
NodeFacts FactsFor(NodeFacts daemon, const v1::NodePart& part, const std::string& listen);

}  // namespace trainctl

#endif  // TRAINCTL_RUNTIME_NODE_PART_H_
