#include "launcher/wire.h"

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "runtime/base/network.h"
#include "runtime/base/status.h"
#include "runtime/base/text.h"

namespace trainctl {
namespace {

constexpr int kMaxNodes = 16384;
constexpr int kMaxWorkersPerNode = 1024;
constexpr int kMaxArguments = 65536;
constexpr size_t kMaxSpecBytes = 8 << 20;

absl::Status Invalid(absl::string_view field, absl::string_view problem) {
  return absl::InvalidArgumentError(absl::StrCat("job specification: ", field, " ", problem));
}

absl::Status CheckText(absl::string_view field, absl::string_view text) {
  if (text.find('\0') != absl::string_view::npos) return Invalid(field, "contains a NUL byte");
  return absl::OkStatus();
}

absl::Status CheckPath(absl::string_view field, absl::string_view path) {
  RETURN_IF_ERROR(CheckText(field, path));
  if (!path.empty() && path[0] != '/') {
    return Invalid(field, absl::StrCat("is \"", path, "\", not an absolute path"));
  }
  return absl::OkStatus();
}

absl::Status CheckRange(absl::string_view field, int64_t value, int64_t low, int64_t high) {
  if (value >= low && value <= high) return absl::OkStatus();
  return Invalid(field, absl::StrCat("is ", value, "; it must be from ", low, " to ", high));
}

// A job id names files and sockets, whose paths are limited to 108 bytes.
absl::Status CheckJobId(absl::string_view id) {
  const bool good =
      id.size() <= 40 && (id.empty() || id[0] != '.') &&
      std::all_of(id.begin(), id.end(), [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '_' || c == '.';
      });
  if (good) return absl::OkStatus();
  return Invalid("job_id", absl::StrCat("is \"", id.substr(0, 60),
                                        "\"; at most 40 of a-z 0-9 - _ . and no leading dot"));
}

absl::Status CheckSpec(const JobSpec& spec) {
  RETURN_IF_ERROR(CheckJobId(spec.job_id));
  if (spec.name.size() > 200) return Invalid("name", "is longer than 200 bytes");
  if (spec.command.empty() || spec.command[0].empty()) return Invalid("command", "is empty");
  RETURN_IF_ERROR(CheckRange("number of arguments", static_cast<int64_t>(spec.command.size()), 1,
                             kMaxArguments));
  RETURN_IF_ERROR(CheckRange("number of environment variables",
                             static_cast<int64_t>(spec.env.size()), 0, kMaxArguments));
  for (const std::string& argument : spec.command) {
    RETURN_IF_ERROR(CheckText("command", argument));
  }
  for (const std::string& entry : spec.env) {
    RETURN_IF_ERROR(CheckText("environment", entry));
    const size_t equals = entry.find('=');
    if (equals == 0 || equals == std::string::npos) {
      return Invalid("environment", absl::StrCat("has the entry \"", entry, "\"; NAME=value"));
    }
  }
  if (spec.cwd.empty()) return Invalid("cwd", "is empty");
  RETURN_IF_ERROR(CheckPath("cwd", spec.cwd));
  RETURN_IF_ERROR(CheckPath("job_folder", spec.job_folder));
  RETURN_IF_ERROR(CheckPath("log_folder", spec.log_folder));
  RETURN_IF_ERROR(CheckPath("checkpoint_folder", spec.checkpoint_folder));
  RETURN_IF_ERROR(CheckRange("min_nodes", spec.min_nodes, 1, kMaxNodes));
  RETURN_IF_ERROR(CheckRange("max_nodes", spec.max_nodes, spec.min_nodes, kMaxNodes));
  RETURN_IF_ERROR(CheckRange("spares", spec.spares, 0, kMaxNodes));
  RETURN_IF_ERROR(
      CheckRange("number of nodes", static_cast<int64_t>(spec.nodes.size()), 0, kMaxNodes));
  if (std::set<std::string>(spec.nodes.begin(), spec.nodes.end()).size() < spec.nodes.size()) {
    return Invalid("nodes", "names a node twice");
  }
  RETURN_IF_ERROR(
      CheckRange("workers_per_node", spec.workers_per_node, kEverySlot, kMaxWorkersPerNode));
  if (!spec.node_slots.empty() && spec.node_slots.size() != spec.nodes.size()) {
    return Invalid("node_slots", "has another number of entries than nodes");
  }
  RETURN_IF_ERROR(CheckRange("daemon_port", spec.daemon_port, 0, 65535));
  for (const auto& [field, path] :
       {std::pair("tls.key", &spec.key_file), std::pair("tls.certificate", &spec.tls_certificate),
        std::pair("tls.private_key", &spec.tls_private_key),
        std::pair("tls.authority", &spec.tls_authority)}) {
    RETURN_IF_ERROR(CheckPath(field, *path));
  }
  if (!spec.listen.empty()) RETURN_IF_ERROR(ParseEndpoint(spec.listen, 0).status());
  RETURN_IF_ERROR(CheckRange("max_restarts", spec.max_restarts, 0, 1'000'000));
  RETURN_IF_ERROR(CheckRange("grace_ns", spec.grace.count(), 0, Duration(seconds(86400)).count()));
  RETURN_IF_ERROR(CheckRange("lease_ns", spec.lease.count(), Duration(milliseconds(100)).count(),
                             Duration(seconds(3600)).count()));
  return absl::OkStatus();
}

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

OutputBytes FromProto(const v1::Output& m) {
  return {Epoch(m.epoch()), m.rank(), static_cast<int>(m.stream()), m.offset(), m.data()};
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

v1::JobSpec ToProto(const JobSpec& spec) {
  v1::JobSpec m;
  m.set_job_id(spec.job_id);
  m.set_name(ValidUtf8(spec.name));
  for (const std::string& argument : spec.command) m.add_command(argument);
  m.set_cwd(spec.cwd);
  for (const std::string& entry : spec.env) m.add_env(entry);
  m.set_role(spec.role);
  m.set_local_rank_argument(spec.local_rank_argument);
  m.set_virtual_local_rank(spec.virtual_local_rank);
  m.set_min_nodes(spec.min_nodes);
  m.set_max_nodes(spec.max_nodes);
  m.set_spares(spec.spares);
  for (const std::string& node : spec.nodes) m.add_nodes(ValidUtf8(node));
  m.set_ranks_follow_nodes(spec.ranks_follow_nodes);
  m.set_workers_per_node(spec.workers_per_node);
  m.set_max_restarts(spec.max_restarts);
  m.set_window_restarts(spec.window_restarts);
  m.set_restart_window_ns(spec.restart_window.count());
  m.set_no_progress_epochs(spec.no_progress_epochs);
  m.set_grace_ns(spec.grace.count());
  m.set_lease_ns(spec.lease.count());
  m.set_join_timeout_ns(spec.join_timeout.count());
  m.set_orphan_timeout_ns(spec.orphan_timeout.count());
  m.set_job_folder(spec.job_folder);
  m.set_log_folder(spec.log_folder);
  m.set_checkpoint_folder(spec.checkpoint_folder);
  m.set_checkpoint_keep(spec.checkpoint_keep);
  m.set_propagate_exit_code(spec.propagate_exit_code);
  m.set_requeue_status(spec.requeue_status);
  for (const std::string& uuid : spec.gpus) m.add_gpus(uuid);
  m.set_listen(spec.listen);
  m.set_head(spec.head);
  m.set_claim(ValidUtf8(spec.claim));
  m.mutable_tls()->set_key(spec.key_file);
  m.mutable_tls()->set_certificate(spec.tls_certificate);
  m.mutable_tls()->set_private_key(spec.tls_private_key);
  m.mutable_tls()->set_authority(spec.tls_authority);
  m.set_daemon_port(spec.daemon_port);
  for (const int slots : spec.node_slots) m.add_node_slots(slots);
  return m;
}

absl::StatusOr<JobSpec> FromProto(const v1::JobSpec& m) {
  if (m.ByteSizeLong() > kMaxSpecBytes) {
    return Invalid("its size",
                   absl::StrCat("is ", m.ByteSizeLong(), " bytes; the limit is ", kMaxSpecBytes));
  }
  JobSpec spec;
  spec.job_id = m.job_id();
  spec.name = m.name();
  spec.command.assign(m.command().begin(), m.command().end());
  spec.cwd = m.cwd();
  spec.env.assign(m.env().begin(), m.env().end());
  spec.role = m.role();
  spec.local_rank_argument = m.local_rank_argument();
  spec.virtual_local_rank = m.virtual_local_rank();
  spec.min_nodes = m.min_nodes();
  spec.max_nodes = m.max_nodes();
  spec.spares = m.spares();
  spec.nodes.assign(m.nodes().begin(), m.nodes().end());
  spec.ranks_follow_nodes = m.ranks_follow_nodes();
  spec.workers_per_node = m.workers_per_node();
  spec.max_restarts = m.max_restarts();
  spec.window_restarts = m.window_restarts();
  spec.restart_window = Duration(m.restart_window_ns());
  spec.no_progress_epochs = m.no_progress_epochs();
  spec.grace = Duration(m.grace_ns());
  spec.lease = Duration(m.lease_ns());
  spec.join_timeout = Duration(m.join_timeout_ns());
  spec.orphan_timeout = Duration(m.orphan_timeout_ns());
  spec.job_folder = m.job_folder();
  spec.log_folder = m.log_folder();
  spec.checkpoint_folder = m.checkpoint_folder();
  spec.checkpoint_keep = m.checkpoint_keep();
  spec.propagate_exit_code = m.propagate_exit_code();
  spec.requeue_status = m.requeue_status();
  spec.gpus.assign(m.gpus().begin(), m.gpus().end());
  spec.listen = m.listen();
  spec.head = m.head();
  spec.claim = m.claim();
  spec.key_file = m.tls().key();
  spec.tls_certificate = m.tls().certificate();
  spec.tls_private_key = m.tls().private_key();
  spec.tls_authority = m.tls().authority();
  spec.daemon_port = m.daemon_port();
  spec.node_slots.assign(m.node_slots().begin(), m.node_slots().end());
  RETURN_IF_ERROR(CheckSpec(spec));
  return spec;
}

std::string EncodeSpec(const JobSpec& spec) { return ToProto(spec).SerializeAsString(); }

absl::StatusOr<JobSpec> DecodeSpec(const std::string& bytes) {
  v1::JobSpec message;
  if (!message.ParseFromString(bytes)) {
    return absl::DataLossError("job specification: the file is damaged");
  }
  return FromProto(message);
}

v1::StartWorkers ToProto(const StartWorkers& action) {
  v1::StartWorkers m;
  m.set_epoch(action.epoch.value);
  m.set_world_size(action.world_size);
  m.set_cwd(action.cwd);
  m.set_log_folder(action.log_folder);
  for (const std::string& entry : action.env) m.add_env(entry);
  for (const WorkerLaunch& worker : action.workers) {
    v1::WorkerLaunch* launch = m.add_workers();
    launch->set_rank(worker.rank);
    launch->set_local_rank(worker.local_rank);
    for (const std::string& argument : worker.argv) launch->add_argv(argument);
    for (const std::string& entry : worker.env) launch->add_env(entry);
  }
  return m;
}

v1::GrantCommit ToProto(const GrantCommit& action) {
  v1::GrantCommit m;
  m.set_epoch(action.epoch.value);
  m.set_step(action.step.value);
  for (const ShardValue& shard : action.shards) {
    v1::Shard* out = m.add_shards();
    out->set_rank(shard.rank);
    out->set_file(shard.file);
    out->set_length(shard.length);
    out->set_digest(shard.digest);
  }
  for (const Step step : action.may_delete) m.add_may_delete(step.value);
  return m;
}

ShardValue FromProto(const v1::Shard& m) { return {m.rank(), m.file(), m.length(), m.digest()}; }

WorkerExit FromProto(const v1::WorkerExit& m) {
  WorkerExit exit;
  exit.kind = static_cast<WorkerExit::Kind>(m.kind());
  exit.code = m.code();
  exit.core = m.core();
  exit.by_us = m.by_us();
  exit.exit_ns = m.exit_ns();
  exit.wall_ns = m.wall_ns();
  exit.message = m.message();
  exit.output_tail = m.output_tail();
  exit.error_json = m.error_json();
  return exit;
}

WorkerState FromProto(const v1::WorkerState& m) {
  return {m.rank(), m.local_rank(), m.pid(), m.running(), FromProto(m.exit())};
}

v1::WorkerState ToProto(const WorkerState& worker) {
  v1::WorkerState m;
  m.set_rank(worker.rank);
  m.set_local_rank(worker.local_rank);
  m.set_pid(worker.pid);
  m.set_running(worker.running);
  if (!worker.running) {
    v1::WorkerExit* exit = m.mutable_exit();
    exit->set_kind(static_cast<v1::WorkerExit::Kind>(worker.exit.kind));
    exit->set_code(worker.exit.code);
    exit->set_core(worker.exit.core);
    exit->set_by_us(worker.exit.by_us);
    exit->set_exit_ns(worker.exit.exit_ns);
    exit->set_wall_ns(worker.exit.wall_ns);
    exit->set_message(worker.exit.message);
  }
  return m;
}

NodeJoined FromProto(const v1::NodeState& m) {
  NodeJoined joined;
  joined.node = m.node();
  joined.incarnation = Incarnation(m.incarnation());
  joined.machine = m.machine();
  for (const v1::NodeAddress& address : m.addresses()) {
    joined.addresses.push_back({address.interface(), address.address()});
  }
  if (joined.addresses.empty()) joined.addresses.push_back({"", m.address()});
  joined.topology = m.topology();
  if (m.has_node_rank()) joined.node_rank = m.node_rank();
  joined.cores = m.cores();
  joined.slots = m.slots();
  joined.unfit = m.unfit();
  joined.reserved_port = m.reserved_port();
  joined.term = Term(m.term());
  joined.epoch = Epoch(m.epoch());
  joined.gone = m.gone();
  for (const v1::WorkerState& worker : m.workers()) joined.workers.push_back(FromProto(worker));
  return joined;
}

std::optional<Event> EventFrom(const std::string& node, Incarnation incarnation,
                               const v1::NodeMessage& m) {
  switch (m.message_case()) {
    case v1::NodeMessage::kLease:
      return LeaseRequested{node, incarnation, m.lease().request_id()};
    case v1::NodeMessage::kStarted: {
      WorkersStarted started{node, Epoch(m.started().epoch()), m.started().reserved_port(), {}};
      for (const v1::WorkerState& worker : m.started().workers()) {
        started.workers.push_back(FromProto(worker));
      }
      return started;
    }
    case v1::NodeMessage::kExited:
      return WorkerExited{node, Epoch(m.exited().epoch()), m.exited().rank(),
                          FromProto(m.exited().exit())};
    case v1::NodeMessage::kGone:
      return NodeEpochGone{node, Epoch(m.gone().epoch())};
    case v1::NodeMessage::kReached: {
      AddressesReached reached{node, m.reached().probe(), {}};
      for (const v1::AddressesReached::Reached& one : m.reached().reached()) {
        reached.reached.push_back({one.address(), one.from()});
      }
      return reached;
    }
    case v1::NodeMessage::kProgress:
      if (m.progress().rank() != 0) return std::nullopt;
      return StepReached{Epoch(m.progress().epoch()),
                         Step(static_cast<int64_t>(m.progress().step())),
                         Step(static_cast<int64_t>(m.progress().total_steps()))};
    case v1::NodeMessage::kShard:
      return ShardPrepared{Epoch(m.shard().epoch()), Step(m.shard().step()),
                           FromProto(m.shard().shard())};
    case v1::NodeMessage::kPublished:
      return CheckpointPublished{Epoch(m.published().epoch()), Step(m.published().step())};
    case v1::NodeMessage::kRejected:
      return CheckpointRejected{Epoch(m.rejected().epoch()), Step(m.rejected().step()),
                                m.rejected().reason()};
    default:
      return std::nullopt;
  }
}

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

std::optional<JobUpdate> FromProto(const v1::JobUpdate& m) {
  switch (m.update_case()) {
    case v1::JobUpdate::kState:
      return FromProto(m.state());
    case v1::JobUpdate::kAnnouncement:
      return Announce{static_cast<Announce::Level>(m.announcement().level()),
                      m.announcement().text()};
    case v1::JobUpdate::kOutput:
      return FromProto(m.output());
    case v1::JobUpdate::kProgress:
      return FromProto(m.progress());
    case v1::JobUpdate::kMetric:
      return MetricSeen{Epoch(m.metric().epoch()), m.metric().rank(), m.metric().name(),
                        m.metric().value()};
    case v1::JobUpdate::kNote:
      return NoteSeen{Epoch(m.note().epoch()), m.note().rank(), m.note().text()};
    case v1::JobUpdate::kFinished:
      return JobEnded{m.finished().outcome(), m.finished().exit_status(), m.finished().reason(),
                      m.finished().report_path(), m.finished().summary()};
    case v1::JobUpdate::UPDATE_NOT_SET:
      return std::nullopt;
  }
  return std::nullopt;
}

v1::NodePart ToProto(const OwnPart& part) {
  v1::NodePart m;
  m.set_node(part.node);
  if (part.node_rank >= 0) m.set_node_rank(part.node_rank);
  m.set_slots(part.slots);
  m.set_address(part.address);
  m.set_topology(part.topology);
  for (const std::string& uuid : part.gpus) m.add_gpus(uuid);
  return m;
}

}  // namespace trainctl
