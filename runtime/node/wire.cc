#include "runtime/node/wire.h"

#include <utility>

#include "absl/strings/string_view.h"
#include "runtime/base/clock.h"
#include "runtime/base/text.h"
#include "runtime/local/page.h"

namespace trainctl {
namespace {

void Fill(const frame::Exit& exit, int64_t exit_ns, v1::WorkerExit* out) {
  out->set_kind(static_cast<v1::WorkerExit::Kind>(exit.kind));
  out->set_code(exit.code);
  out->set_core(exit.core);
  out->set_by_us(exit.by_us);
  out->set_message(exit.message);
  out->set_exit_ns(exit_ns);
  // The shim stamps the boot-time clock only; the wall clock is for people.
  out->set_wall_ns(WallClockNanos() - (Now().ns - exit_ns));
}

void Fill(const frame::SlotState& slot, v1::WorkerState* out) {
  out->set_rank(slot.rank);
  out->set_local_rank(slot.local_rank);
  out->set_pid(slot.pid);
  out->set_running(slot.running);
  if (slot.running) return;
  Fill(slot.exit, slot.exit_ns, out->mutable_exit());
  out->mutable_exit()->set_output_tail(slot.output_tail);
  out->mutable_exit()->set_error_json(slot.error_json);
}

void Fill(const frame::Exchange& exchange, v1::Exchange* out) {
  out->set_epoch(exchange.epoch);
  out->set_rank(exchange.rank);
  out->set_name(ValidUtf8(exchange.name));
  out->set_value(exchange.value);
  out->set_timeout_ns(exchange.timeout_ns);
}

void Fill(const frame::Shard& shard, v1::Shard* out) {
  out->set_rank(shard.rank);
  out->set_file(ValidUtf8(shard.file));
  out->set_length(shard.length);
  out->set_digest(ValidUtf8(shard.digest));
}

// One overload for each frame that goes to the coordinator.
struct MessageOf {
  v1::NodeMessage out;

  bool operator()(const frame::LeaseRequest& f) {
    out.mutable_lease()->set_request_id(f.request_id);
    return true;
  }
  bool operator()(const frame::EpochStarted& f) {
    v1::WorkersStarted* m = out.mutable_started();
    m->set_epoch(f.epoch);
    m->set_reserved_port(f.reserved_port);
    for (const frame::SlotState& slot : f.slots) Fill(slot, m->add_workers());
    return true;
  }
  bool operator()(const frame::WorkerExited& f) {
    v1::WorkerExited* m = out.mutable_exited();
    m->set_epoch(f.epoch);
    m->set_rank(f.rank);
    Fill(f.exit, f.exit_ns, m->mutable_exit());
    m->mutable_exit()->set_output_tail(f.output_tail);
    m->mutable_exit()->set_error_json(f.error_json);
    return true;
  }
  bool operator()(const frame::EpochGone& f) {
    out.mutable_gone()->set_epoch(f.epoch);
    return true;
  }
  bool operator()(const frame::Progress& f) {
    v1::Progress* m = out.mutable_progress();
    m->set_epoch(f.epoch);
    m->set_rank(f.rank);
    m->set_step(f.step);
    m->set_total_steps(f.total_steps);
    m->set_samples(f.samples);
    m->set_loss(f.loss);
    m->set_data_epoch(f.data_epoch);
    m->set_phase(f.phase);
    m->set_resumed(f.resumed);
    m->set_first_step_ns(f.first_step_ns);
    return true;
  }
  bool operator()(const frame::Exchange& f) {
    Fill(f, out.mutable_exchange());
    return true;
  }
  bool operator()(const frame::ShardPrepared& f) {
    v1::ShardPrepared* m = out.mutable_shard();
    m->set_epoch(f.epoch);
    m->set_step(f.step);
    Fill(f.shard, m->mutable_shard());
    return true;
  }
  bool operator()(const frame::CheckpointPublished& f) {
    out.mutable_published()->set_epoch(f.epoch);
    out.mutable_published()->set_step(f.step);
    return true;
  }
  bool operator()(const frame::CheckpointRejected& f) {
    out.mutable_rejected()->set_epoch(f.epoch);
    out.mutable_rejected()->set_step(f.step);
    out.mutable_rejected()->set_reason(ValidUtf8(f.reason));
    return true;
  }
  bool operator()(const frame::Metric& f) {
    v1::Metric* m = out.mutable_metric();
    m->set_epoch(f.epoch);
    m->set_rank(f.rank);
    m->set_name(ValidUtf8(f.name));
    m->set_value(f.value);
    return true;
  }
  bool operator()(const frame::Note& f) {
    out.mutable_note()->set_epoch(f.epoch);
    out.mutable_note()->set_rank(f.rank);
    out.mutable_note()->set_text(f.text);
    return true;
  }
  bool operator()(const frame::HangSuspected& f) {
    v1::HangSuspected* m = out.mutable_hang();
    m->set_epoch(f.epoch);
    m->set_rank(f.rank);
    m->set_step(f.step);
    m->set_reason(ValidUtf8(f.reason));
    return true;
  }
  bool operator()(const frame::WorkersDiagnosed& f) {
    v1::WorkersDiagnosed* m = out.mutable_diagnosed();
    m->set_epoch(f.epoch);
    for (const frame::RankEvidence& e : f.ranks) {
      v1::RankEvidence* rank = m->add_ranks();
      rank->set_rank(e.rank);
      const auto phase = static_cast<WorkerPhase>(e.phase);
      if (phase != WorkerPhase::kNone) rank->set_phase(WorkerPhaseName(phase));
      rank->set_phase_ns(e.phase_ns);
      rank->set_step(e.step);
      rank->set_collectives(e.collectives);
      rank->set_in_collective(e.in_collective);
      rank->set_stopped(e.stopped);
      rank->set_collective(ValidUtf8(e.collective));
    }
    return true;
  }
  bool operator()(const frame::Unkillable& f) {
    out.mutable_unkillable()->set_epoch(f.epoch);
    out.mutable_unkillable()->set_which(ValidUtf8(f.which));
    return true;
  }
  template <typename Other>
  bool operator()(const Other&) {
    return false;
  }
};

frame::StartEpoch StartFrame(const v1::StartWorkers& m, int64_t term) {
  frame::StartEpoch f;
  f.term = term;
  f.epoch = m.epoch();
  f.world_size = m.world_size();
  f.cwd = m.cwd();
  f.log_folder = m.log_folder();
  f.memory_limit = m.memory_limit();
  f.process_limit = m.process_limit();
  f.log_quota = m.log_quota();
  f.hang_timeout_ns = m.hang_timeout_ns();
  f.env.assign(m.env().begin(), m.env().end());
  for (const v1::WorkerLaunch& worker : m.workers()) {
    f.workers.push_back({worker.rank(),
                         worker.local_rank(),
                         {worker.argv().begin(), worker.argv().end()},
                         {worker.env().begin(), worker.env().end()}});
  }
  return f;
}

frame::CommitGranted GrantFrame(const v1::GrantCommit& m, int64_t term) {
  frame::CommitGranted f;
  f.epoch = m.epoch();
  f.term = term;
  f.step = m.step();
  for (const v1::Shard& shard : m.shards()) {
    f.shards.push_back({shard.rank(), shard.file(), shard.length(), shard.digest()});
  }
  f.may_delete.assign(m.may_delete().begin(), m.may_delete().end());
  return f;
}

}  // namespace

v1::NodeMessage StateMessage(const NodeFacts& facts, int slots, const std::string& unfit,
                             const NodeState& known) {
  const frame::ShimState state = known.Told();
  v1::NodeMessage message;
  v1::NodeState* m = message.mutable_state();
  m->set_node(facts.node);
  m->set_incarnation(facts.incarnation);
  m->set_machine(facts.machine);
  for (const InterfaceAddress& own : facts.addresses) {
    v1::NodeAddress* address = m->add_addresses();
    address->set_interface(own.interface);
    address->set_address(own.address);
  }
  m->set_topology(ValidUtf8(facts.topology));
  if (facts.node_rank >= 0) m->set_node_rank(facts.node_rank);
  m->set_cores(facts.cores);
  m->set_devices(facts.devices);
  m->set_slots(unfit.empty() ? slots : 0);
  m->set_unfit(ValidUtf8(unfit));
  m->set_reserved_port(state.reserved_port);
  m->set_term(state.term);
  m->set_epoch(state.epoch);
  m->set_gone(state.gone);
  for (const frame::SlotState& slot : state.slots) Fill(slot, m->add_workers());
  for (const frame::Exchange& exchange : state.exchanges) Fill(exchange, m->add_exchanges());
  return message;
}

std::optional<v1::NodeMessage> ToMessage(const frame::Frame& frame) {
  MessageOf convert;
  if (!std::visit(convert, frame)) return std::nullopt;
  return std::move(convert.out);
}

void Fill(frame::Output frame, v1::Output* out) {
  out->set_epoch(frame.epoch);
  out->set_rank(frame.rank);
  out->set_stream(frame.stream);
  out->set_offset(frame.offset);
  out->set_skipped(frame.skipped);
  out->set_data(std::move(frame.bytes));
}

frame::OutputFrom ToFrame(const v1::OutputFrom& from) {
  return {from.epoch(), from.rank(), static_cast<uint8_t>(from.stream()), from.offset(),
          from.limit()};
}

std::optional<frame::Frame> ToFrame(const v1::NodeOrder& order) {
  switch (order.order_case()) {
    case v1::NodeOrder::kStart:
      return StartFrame(order.start(), order.term());
    case v1::NodeOrder::kStop:
      return frame::StopEpoch{order.term(), order.stop().epoch(), order.stop().grace_ns(),
                              order.stop().abort()};
    case v1::NodeOrder::kLease:
      return frame::LeaseAnswer{order.lease().request_id(), order.term(), order.lease().granted(),
                                order.lease().lease_ns()};
    case v1::NodeOrder::kGrant:
      return GrantFrame(order.grant(), order.term());
    case v1::NodeOrder::kCheckpoint:
      return frame::PageRequest{order.checkpoint().epoch(), order.checkpoint().then_stop(), true};
    case v1::NodeOrder::kExchange:
      return frame::ExchangeDone{
          order.exchange().epoch(),
          order.exchange().name(),
          {order.exchange().values().begin(), order.exchange().values().end()},
          order.exchange().error()};
    case v1::NodeOrder::kSignal:
      return frame::SignalWorkers{order.signal().epoch(),
                                  order.signal().signo(),
                                  {order.signal().ranks().begin(), order.signal().ranks().end()}};
    case v1::NodeOrder::kDiagnose:
      return frame::DiagnoseWorkers{order.diagnose().epoch()};
    case v1::NodeOrder::kRelease:
      return frame::Release{};
    case v1::NodeOrder::kOutput:  // several frames
    case v1::NodeOrder::kProbe:   // not the shim's
    case v1::NodeOrder::kVanish:
    case v1::NodeOrder::ORDER_NOT_SET:
      return std::nullopt;
  }
  return std::nullopt;
}

}  // namespace trainctl
