#include "tests/sim/wire.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/sim/node.h"

namespace trainctl::sim {
namespace {

WorkerExit ExitOf(const frame::Exit& exit, int64_t exit_ns) {
  WorkerExit out;
  out.kind = static_cast<WorkerExit::Kind>(exit.kind);
  out.code = exit.code;
  out.core = exit.core;
  out.by_us = exit.by_us;
  out.exit_ns = exit_ns;
  out.message = exit.message;
  return out;
}

WorkerState StateOf(const frame::SlotState& slot) {
  WorkerExit exit = ExitOf(slot.exit, slot.exit_ns);
  exit.output_tail = slot.output_tail;
  exit.error_json = slot.error_json;
  return {slot.rank, slot.local_rank, slot.pid, slot.running, std::move(exit)};
}

}  // namespace

std::optional<Event> EventOf(const std::string& node, int64_t incarnation,
                             const frame::Frame& frame) {
  if (const auto* f = std::get_if<frame::LeaseRequest>(&frame)) {
    return LeaseRequested{node, Incarnation(incarnation), f->request_id};
  }
  if (const auto* f = std::get_if<frame::EpochStarted>(&frame)) {
    WorkersStarted started{node, Epoch(f->epoch), f->reserved_port, {}};
    for (const frame::SlotState& slot : f->slots) started.workers.push_back(StateOf(slot));
    return started;
  }
  if (const auto* f = std::get_if<frame::WorkerExited>(&frame)) {
    WorkerExit exit = ExitOf(f->exit, f->exit_ns);
    exit.output_tail = f->output_tail;
    exit.error_json = f->error_json;
    return WorkerExited{node, Epoch(f->epoch), f->rank, std::move(exit)};
  }
  if (const auto* f = std::get_if<frame::EpochGone>(&frame)) {
    return NodeEpochGone{node, Epoch(f->epoch)};
  }
  if (const auto* f = std::get_if<frame::Progress>(&frame)) {
    if (f->rank != 0) return std::nullopt;
    return StepReached{Epoch(f->epoch), Step(static_cast<int64_t>(f->step)),
                       Step(static_cast<int64_t>(f->total_steps))};
  }
  if (const auto* f = std::get_if<frame::ShardPrepared>(&frame)) {
    return ShardPrepared{Epoch(f->epoch),
                         Step(f->step),
                         {f->shard.rank, f->shard.file, f->shard.length, f->shard.digest}};
  }
  if (const auto* f = std::get_if<frame::CheckpointPublished>(&frame)) {
    return CheckpointPublished{Epoch(f->epoch), Step(f->step)};
  }
  if (const auto* f = std::get_if<frame::CheckpointRejected>(&frame)) {
    return CheckpointRejected{Epoch(f->epoch), Step(f->step), f->reason};
  }
  if (const auto* f = std::get_if<frame::HangSuspected>(&frame)) {
    return HangSuspected{node, Epoch(f->epoch), f->rank, Step(static_cast<int64_t>(f->step)),
                         f->reason};
  }
  if (const auto* f = std::get_if<frame::WorkersDiagnosed>(&frame)) {
    WorkersDiagnosed diagnosed{node, Epoch(f->epoch), {}};
    for (const frame::RankEvidence& rank : f->ranks) {
      RankEvidence& evidence = diagnosed.ranks.emplace_back();
      evidence.rank = rank.rank;
      evidence.phase = rank.in_collective ? "collective" : "forward";
      evidence.in_phase = Duration(rank.phase_ns);
      evidence.step = Step(static_cast<int64_t>(rank.step));
      evidence.collectives = rank.collectives;
      evidence.in_collective = rank.in_collective;
    }
    return diagnosed;
  }
  return std::nullopt;
}

NodeJoined JoinedOf(const Node& node, int64_t incarnation, int slots, const NodeState& known) {
  const frame::ShimState state = known.Told();
  NodeJoined joined;
  joined.node = node.name();
  joined.incarnation = Incarnation(incarnation);
  joined.machine = absl::StrCat("machine-", node.name());
  joined.addresses = node.addresses();
  joined.cores = 2 * slots;
  joined.slots = slots;
  joined.reserved_port = state.reserved_port;
  joined.term = Term(state.term);
  joined.epoch = Epoch(state.epoch);
  joined.gone = state.gone;
  for (const frame::SlotState& slot : state.slots) {
    joined.workers.push_back(StateOf(slot));
  }
  return joined;
}

std::optional<frame::Frame> FrameOf(const Order& order) {
  if (const auto* start = std::get_if<StartWorkers>(&order.action)) {
    frame::StartEpoch out;
    out.term = order.term.value;
    out.epoch = start->epoch.value;
    out.world_size = start->world_size;
    for (const WorkerLaunch& worker : start->workers) {
      out.workers.push_back({worker.rank, worker.local_rank, {}, {}});
    }
    return out;
  }
  if (const auto* stop = std::get_if<StopWorkers>(&order.action)) {
    return frame::StopEpoch{order.term.value, stop->epoch.value, stop->grace.count(), stop->abort};
  }
  if (const auto* ask = std::get_if<DiagnoseWorkers>(&order.action)) {
    return frame::DiagnoseWorkers{ask->epoch.value};
  }
  if (const auto* answer = std::get_if<AnswerLease>(&order.action)) {
    return frame::LeaseAnswer{answer->request_id, order.term.value, answer->granted,
                              answer->lease.count()};
  }
  if (const auto* ask = std::get_if<RequestCheckpoint>(&order.action)) {
    return frame::PageRequest{ask->epoch.value, ask->then_stop, true};
  }
  if (const auto* grant = std::get_if<GrantCommit>(&order.action)) {
    frame::CommitGranted out;
    out.epoch = grant->epoch.value;
    out.term = order.term.value;
    out.step = grant->step.value;
    for (const ShardValue& shard : grant->shards) {
      out.shards.push_back({shard.rank, shard.file, shard.length, shard.digest});
    }
    for (const Step step : grant->may_delete) out.may_delete.push_back(step.value);
    return out;
  }
  return std::nullopt;
}

}  // namespace trainctl::sim
