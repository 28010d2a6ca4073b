// Frames of a worker: kept where a new daemon needs them again, and passed on.
#include <type_traits>
#include <utility>

#include "runtime/supervisor/supervisor.h"

namespace trainctl {

bool Supervisor::OnWorkerFrame(Peer* peer, frame::Frame& frame) {
  // What a worker says about itself must be about itself.
  const int64_t epoch = peer->incarnation;
  const int32_t rank = peer->rank;
  const auto own = [epoch, rank](auto& f) { return f.epoch == epoch && f.rank == rank; };
  bool valid = false;
  if (auto* exchange = std::get_if<frame::Exchange>(&frame)) {
    if ((valid = own(*exchange))) records_.Keep(*exchange);
  } else if (auto* prepared = std::get_if<frame::ShardPrepared>(&frame)) {
    valid = prepared->epoch == epoch && prepared->shard.rank == rank;
    if (valid) records_.Keep(*prepared);
  } else if (auto* published = std::get_if<frame::CheckpointPublished>(&frame)) {
    valid = published->epoch == epoch && rank == 0;
    if (valid) records_.Keep(*published);
  } else if (auto* rejected = std::get_if<frame::CheckpointRejected>(&frame)) {
    valid = rejected->epoch == epoch;
    if (valid) records_.Keep(*rejected);
  } else if (auto* metric = std::get_if<frame::Metric>(&frame)) {
    if ((valid = own(*metric))) records_.Keep(*metric);
  } else if (auto* note = std::get_if<frame::Note>(&frame)) {
    if ((valid = own(*note))) {
      AddNote(rank, std::move(note->text));
      return true;
    }
  }
  if (valid) SendToDaemon(frame);
  return valid;
}

}  // namespace trainctl
