// Orders to nodes and what nodes tell.
#include "launcher/wire.h"

#include "absl/strings/str_cat.h"
#include "runtime/topology/xid.h"

namespace trainctl {

v1::StartWorkers ToProto(const StartWorkers& action) {
  v1::StartWorkers m;
  m.set_epoch(action.epoch.value);
  m.set_world_size(action.world_size);
  m.set_cwd(action.cwd);
  m.set_log_folder(action.log_folder);
  m.set_hang_timeout_ns(action.hang_timeout.count());
  m.set_memory_limit(action.memory_limit);
  m.set_process_limit(action.process_limit);
  m.set_log_quota(action.log_quota);
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

RankEvidence FromProto(const v1::RankEvidence& m) {
  RankEvidence evidence;
  evidence.rank = m.rank();
  evidence.phase = m.phase();
  evidence.in_phase = Duration(m.phase_ns());
  evidence.step = Step(static_cast<int64_t>(m.step()));
  evidence.collectives = m.collectives();
  evidence.in_collective = m.in_collective();
  evidence.stopped = m.stopped();
  evidence.collective = m.collective();
  return evidence;
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
    case v1::NodeMessage::kHang:
      return HangSuspected{node, Epoch(m.hang().epoch()), m.hang().rank(),
                           Step(static_cast<int64_t>(m.hang().step())), m.hang().reason()};
    case v1::NodeMessage::kDiagnosed: {
      WorkersDiagnosed diagnosed{node, Epoch(m.diagnosed().epoch()), {}};
      for (const v1::RankEvidence& rank : m.diagnosed().ranks()) {
        diagnosed.ranks.push_back(FromProto(rank));
      }
      return diagnosed;
    }
    case v1::NodeMessage::kUnkillable:
      return NodeUnfit{node, Epoch(m.unkillable().epoch()), m.unkillable().which()};
    case v1::NodeMessage::kGpuFault: {
      const Xid xid = FindXid(m.gpu_fault().xid());
      GpuFaulted fault{node, Epoch(m.gpu_fault().epoch()), m.gpu_fault().local_rank(),
                       absl::StrCat(m.gpu_fault().device(), ": ", DescribeXid(xid))};
      fault.unfit = xid.meaning == XidMeaning::kUnfit;
      fault.hardware = fault.unfit || xid.meaning == XidMeaning::kRestart;
      return fault;
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

v1::NodePart ToProto(const OwnPart& part) {
  v1::NodePart m;
  m.set_node(part.node);
  if (part.node_rank >= 0) m.set_node_rank(part.node_rank);
  m.set_slots(part.slots);
  m.set_address(part.address);
  m.set_topology(part.topology);
  for (const std::string& uuid : part.gpus) m.add_gpus(uuid);
  if (part.binding.workers.empty()) return m;
  v1::NodeBinding* binding = m.mutable_binding();
  for (const GpuWorker& worker : part.binding.workers) {
    v1::NodeBinding::Worker* out = binding->add_workers();
    out->set_device(worker.device);
    out->set_uuid(worker.uuid);
    out->set_numa(worker.numa);
    for (const int cpu : worker.cpus) out->add_cpus(cpu);
  }
  binding->set_slices(part.binding.slices);
  binding->mutable_settings()->insert(part.binding.settings.begin(), part.binding.settings.end());
  binding->set_devices(part.devices);
  return m;
}

}  // namespace trainctl
