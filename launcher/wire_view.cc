// What front ends see.
#include "launcher/wire.h"

#include <utility>

#include "absl/strings/string_view.h"
#include "runtime/base/text.h"

namespace trainctl {
namespace {

JobPhase PhaseFromName(absl::string_view name) {
  for (const JobPhase phase :
       {JobPhase::kForming, JobPhase::kStarting, JobPhase::kRunning, JobPhase::kDraining}) {
    if (name == JobPhaseName(phase)) return phase;
  }
  return JobPhase::kFinished;
}

NodeStanding StandingFromName(absl::string_view name) {
  for (const NodeStanding standing :
       {NodeStanding::kReady, NodeStanding::kSpare, NodeStanding::kMember, NodeStanding::kLate,
        NodeStanding::kLost, NodeStanding::kFenced, NodeStanding::kAway, NodeStanding::kDrained,
        NodeStanding::kUnfit}) {
    if (name == NodeStandingName(standing)) return standing;
  }
  return NodeStanding::kExpected;
}

OutputBatch FromProto(v1::OutputBatch m) {
  OutputBatch batch;
  batch.reserve(static_cast<size_t>(m.outputs_size()));
  for (v1::Output& output : *m.mutable_outputs()) {
    batch.push_back({Epoch(output.epoch()), output.rank(), static_cast<int>(output.stream()),
                     output.offset(), output.skipped(), std::move(*output.mutable_data())});
  }
  return batch;
}

ProgressSeen FromProto(const v1::Progress& m) {
  ProgressSeen seen;
  seen.epoch = Epoch(m.epoch());
  seen.rank = m.rank();
  seen.step = m.step();
  seen.total_steps = m.total_steps();
  seen.samples = m.samples();
  seen.samples_per_second = m.samples_per_second();
  seen.loss = m.loss();
  seen.data_epoch = m.data_epoch();
  seen.phase = m.phase();
  seen.resumed = m.resumed();
  return seen;
}

}  // namespace

v1::JobState ToProto(const JobDescription& job) {
  v1::JobState m;
  m.set_job_id(job.job_id);
  m.set_name(ValidUtf8(job.name));
  m.set_phase(JobPhaseName(job.view.phase));
  m.set_term(job.view.term.value);
  m.set_epoch(job.view.epoch.value);
  m.set_world_size(job.view.world_size);
  m.set_restarts(job.view.restarts);
  m.set_step(job.view.step.value);
  m.set_total_steps(job.view.total_steps.value);
  m.set_recovery_point(job.view.recovery_point.value);
  for (const RankPlace& place : job.view.ranks) {
    v1::RankPlace* out = m.add_ranks();
    out->set_rank(place.rank);
    out->set_local_rank(place.local_rank);
    out->set_node(place.node);
  }
  for (const NodeView& node : job.view.nodes) {
    v1::JobNode* out = m.add_nodes();
    out->set_node(node.node);
    out->set_standing(NodeStandingName(node.standing));
    out->set_address(node.address);
    out->set_slots(node.slots);
    out->set_workers(node.workers);
    out->set_since_ns(node.since.ns);
    out->set_reason(ValidUtf8(node.reason));
  }
  m.set_explain(ValidUtf8(job.view.explain));
  m.set_job_folder(job.job_folder);
  m.set_log_folder(job.log_folder);
  m.set_checkpoint_folder(job.checkpoint_folder);
  m.set_coordinator_pid(job.coordinator_pid);
  m.set_detached(job.detached);
  for (const WorkerState& worker : job.workers) *m.add_workers() = ToProto(worker);
  return m;
}

JobDescription FromProto(const v1::JobState& m) {
  JobDescription job;
  job.job_id = m.job_id();
  job.name = m.name();
  job.view.phase = PhaseFromName(m.phase());
  job.view.term = Term(m.term());
  job.view.epoch = Epoch(m.epoch());
  job.view.world_size = m.world_size();
  job.view.restarts = m.restarts();
  job.view.step = Step(m.step());
  job.view.total_steps = Step(m.total_steps());
  job.view.recovery_point = Step(m.recovery_point());
  for (const v1::RankPlace& place : m.ranks()) {
    job.view.ranks.push_back({place.rank(), place.local_rank(), place.node(), ""});
  }
  for (const v1::JobNode& node : m.nodes()) {
    job.view.nodes.push_back({node.node(), StandingFromName(node.standing()), node.address(),
                              node.slots(), node.workers(), Instant{node.since_ns()},
                              node.reason()});
  }
  job.view.explain = m.explain();
  job.job_folder = m.job_folder();
  job.log_folder = m.log_folder();
  job.checkpoint_folder = m.checkpoint_folder();
  job.coordinator_pid = m.coordinator_pid();
  job.detached = m.detached();
  for (const v1::WorkerState& worker : m.workers()) job.workers.push_back(FromProto(worker));
  return job;
}

std::optional<JobUpdate> FromProto(v1::JobUpdate m) {
  switch (m.update_case()) {
    case v1::JobUpdate::kState:
      return FromProto(m.state());
    case v1::JobUpdate::kAnnouncement:
      return Announce{static_cast<Announce::Level>(m.announcement().level()),
                      m.announcement().text()};
    case v1::JobUpdate::kOutput:
      return FromProto(std::move(*m.mutable_output()));
    case v1::JobUpdate::kProgress:
      return FromProto(m.progress());
    case v1::JobUpdate::kMetric:
      return MetricSeen{Epoch(m.metric().epoch()), m.metric().rank(), m.metric().name(),
                        m.metric().value()};
    case v1::JobUpdate::kNote:
      return NoteSeen{Epoch(m.note().epoch()), m.note().rank(), m.note().text()};
    case v1::JobUpdate::kFinished:
      return JobEnded{
          m.finished().outcome(),
          m.finished().exit_status(),
          m.finished().reason(),
          m.finished().report_path(),
          m.finished().summary(),
          {m.finished().worker_statuses().begin(), m.finished().worker_statuses().end()}};
    case v1::JobUpdate::UPDATE_NOT_SET:
      return std::nullopt;
  }
  return std::nullopt;
}

}  // namespace trainctl
