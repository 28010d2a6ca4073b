// The one place in launcher/ where wire messages become values and back. Values coming from the
// wire are input: what a message may hold is checked here, once.
#ifndef TRAINCTL_LAUNCHER_WIRE_H_
#define TRAINCTL_LAUNCHER_WIRE_H_

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "launcher/coordinator/action.h"
#include "launcher/coordinator/event.h"
#include "launcher/coordinator/spec.h"
#include "launcher/job_client.h"
#include "launcher/node_role.h"
#include "proto/job.pb.h"
#include "proto/node.pb.h"

namespace trainctl {

v1::JobSpec ToProto(const JobSpec& spec);
// INVALID_ARGUMENT names the field and what is wrong with it. A job id and folders may be empty:
// the daemon that starts the job chooses them.
absl::StatusOr<JobSpec> FromProto(const v1::JobSpec& message);

// spec.pb of a job folder.
std::string EncodeSpec(const JobSpec& spec);
absl::StatusOr<JobSpec> DecodeSpec(const std::string& bytes);

// Orders to a node.
v1::StartWorkers ToProto(const StartWorkers& action);
v1::GrantCommit ToProto(const GrantCommit& action);

v1::NodePart ToProto(const OwnPart& part);

// What a node tells.
NodeJoined FromProto(const v1::NodeState& message);
WorkerState FromProto(const v1::WorkerState& message);
WorkerExit FromProto(const v1::WorkerExit& message);
v1::WorkerState ToProto(const WorkerState& worker);
ShardValue FromProto(const v1::Shard& message);
RankEvidence FromProto(const v1::RankEvidence& message);
// nullopt: a message that the coordinator itself is not told (state, output, exchange, …).
std::optional<Event> EventFrom(const std::string& node, Incarnation incarnation,
                               const v1::NodeMessage& message);

// What front ends see.
v1::JobState ToProto(const JobDescription& description);
JobDescription FromProto(const v1::JobState& message);
// nullopt: a kind of update that this version does not know.
std::optional<JobUpdate> FromProto(v1::JobUpdate message);

}  // namespace trainctl

#endif  // TRAINCTL_LAUNCHER_WIRE_H_
