#include "tests/sim/network.h"

#include <algorithm>

namespace trainctl::sim {
namespace {

// How long either end waits for an answer to its keepalive before it gives the stream up.
constexpr Duration kKeepaliveLow = seconds(3);
constexpr Duration kKeepaliveHigh = seconds(20);
constexpr Duration kDialPatienceLow = seconds(1);
constexpr Duration kDialPatienceHigh = seconds(3);

}  // namespace

void Network::AddNode(bool local) {
  Link link;
  link.local = local;
  link.delay = local ? Duration(20'000) : random_.Between(Duration(50'000), milliseconds(1));
  links_.push_back(link);
}

bool Network::Silent(int node) const {
  const Link& link = links_[Index(node)];
  return link.up_cut || link.down_cut || !ends_.answers(node);
}

// ---- Streams

StreamId Network::Dial(int node, std::vector<Event> opening) {
  uint32_t place = static_cast<uint32_t>(streams_.size());
  if (free_.empty()) {
    streams_.push_back(std::make_unique<Stream>());
  } else {
    place = free_.back();
    free_.pop_back();
  }
  const StreamId id = ++lives_ << 32 | place;
  Stream& stream = At(id);
  stream.id = id;
  stream.node = node;
  stream.node_open = true;
  for (Event& event : opening) stream.up.queue.emplace_back(std::move(event));
  Link& link = links_[Index(node)];
  link.newest = id;
  ++stream.on_the_way;
  timeline_->After(link.delay + link.extra, [this, id] { Accept(id); });
  return id;
}

void Network::Accept(StreamId id) {
  Stream& stream = At(id);
  --stream.on_the_way;
  if (!stream.node_open) return Recycle(id);
  if (Silent(stream.node)) {
    ++stream.on_the_way;
    return timeline_->After(random_.Between(kDialPatienceLow, kDialPatienceHigh), [this, id] {
      --At(id).on_the_way;
      NodeGivesUp(id);
    });
  }
  if (!ends_.listens()) return NodeGivesUp(id);
  stream.accepted = true;
  stream.coordinator_open = true;
  const Link& link = links_[Index(stream.node)];
  for (size_t i = stream.up.due; i < stream.up.queue.size(); ++i) {
    ++stream.on_the_way;
    timeline_->At(ArrivalOf(&stream.up.last, link), [this, id] {
      --At(id).on_the_way;
      ++At(id).up.due;
      DeliverUp(id);
    });
  }
}

Instant Network::ArrivalOf(Instant* last, const Link& link) {
  const Duration jitter = random_.Between(Duration(0), link.delay / 4 + link.extra);
  *last = std::max(*last, timeline_->now() + link.delay + jitter);
  return *last;
}

void Network::PutUp(StreamId id, std::optional<Event> message) {
  Stream& stream = At(id);
  stream.up.queue.push_back(std::move(message));
  if (!stream.accepted) return;  // Accept sends it
  ++stream.on_the_way;
  timeline_->At(ArrivalOf(&stream.up.last, links_[Index(stream.node)]), [this, id] {
    --At(id).on_the_way;
    ++At(id).up.due;
    DeliverUp(id);
  });
}

void Network::PutDown(StreamId id, std::optional<Order> message) {
  Stream& stream = At(id);
  stream.down.queue.push_back(std::move(message));
  ++stream.on_the_way;
  timeline_->At(ArrivalOf(&stream.down.last, links_[Index(stream.node)]), [this, id] {
    --At(id).on_the_way;
    ++At(id).down.due;
    DeliverDown(id);
  });
}

void Network::DeliverUp(StreamId id) {
  Stream& stream = At(id);
  ++stream.on_the_way;  // it must not be recycled under us
  while (stream.up.due > 0 && !links_[Index(stream.node)].up_cut) {
    std::optional<Event> message = std::move(stream.up.queue.front());
    stream.up.queue.pop_front();
    --stream.up.due;
    if (!stream.coordinator_open) continue;
    if (message) {
      ends_.on_event(id, stream.node, *std::move(message));
    } else {
      stream.coordinator_open = false;
      ends_.on_node_closed(id);
    }
  }
  --stream.on_the_way;
  Recycle(id);
}

void Network::DeliverDown(StreamId id) {
  Stream& stream = At(id);
  ++stream.on_the_way;
  while (stream.down.due > 0 && !links_[Index(stream.node)].down_cut) {
    std::optional<Order> message = std::move(stream.down.queue.front());
    stream.down.queue.pop_front();
    --stream.down.due;
    if (!stream.node_open) continue;
    if (message) {
      ends_.on_order(stream.node, id, *std::move(message));
    } else {
      stream.node_open = false;
      ends_.on_coordinator_closed(stream.node, id);
    }
  }
  --stream.on_the_way;
  Recycle(id);
}

void Network::Send(StreamId stream, Event event) {
  if (Knows(stream) && At(stream).node_open) PutUp(stream, std::move(event));
}

void Network::Send(StreamId stream, Order order) {
  if (Knows(stream) && At(stream).coordinator_open) PutDown(stream, std::move(order));
}

void Network::CloseByNode(StreamId id) {
  if (!Knows(id) || !At(id).node_open) return;
  Stream& stream = At(id);
  stream.node_open = false;
  PutUp(id, std::nullopt);
}

void Network::CloseByCoordinator(StreamId id) {
  if (!Knows(id) || !At(id).coordinator_open) return;
  Stream& stream = At(id);
  stream.coordinator_open = false;
  PutDown(id, std::nullopt);
}

void Network::NodeVanished(StreamId id) {
  if (!Knows(id)) return;
  At(id).node_open = false;
  Recycle(id);
}

void Network::CoordinatorDied() {
  for (const auto& stream : streams_) CloseByCoordinator(stream->id);
}

void Network::CoordinatorVanished() {
  for (const auto& stream : streams_) {
    if (!stream->coordinator_open) continue;
    const StreamId id = stream->id;
    stream->coordinator_open = false;
    ++stream->on_the_way;
    timeline_->After(random_.Between(kKeepaliveLow, kKeepaliveHigh), [this, id] {
      --At(id).on_the_way;
      NodeGivesUp(id);
    });
  }
}

void Network::NodeGivesUp(StreamId id) {
  Stream& stream = At(id);
  if (stream.node_open) {
    CloseByNode(id);  // the other end hears of it once the link lets it
    ends_.on_coordinator_closed(stream.node, id);
  }
  Recycle(id);
}

void Network::CoordinatorGivesUp(StreamId id) {
  Stream& stream = At(id);
  if (stream.coordinator_open) {
    CloseByCoordinator(id);
    ends_.on_node_closed(id);
  }
  Recycle(id);
}

void Network::Recycle(StreamId id) {
  Stream& stream = At(id);
  if (stream.node_open || stream.coordinator_open || stream.on_the_way > 0) return;
  // Messages that a cut holds back wait for nobody any more.
  Link& link = links_[Index(stream.node)];
  if (link.newest == id) link.newest = kNoStream;
  stream = Stream{};
  free_.push_back(static_cast<uint32_t>(id));
}

// ---- Links

void Network::Cut(int node, bool up, bool down) {
  Link& link = links_[Index(node)];
  if (link.local) return;
  link.up_cut = up;
  link.down_cut = down;
  CheckSilence(node);
  for (size_t i = 0; i < streams_.size(); ++i) {
    const StreamId id = streams_[i]->id;
    if (id == kNoStream || At(id).node != node) continue;
    if (!up && At(id).up.due > 0) DeliverUp(id);
    if (!down && Knows(id) && At(id).down.due > 0) DeliverDown(id);
  }
}

void Network::Slow(int node, Duration extra) {
  if (!links_[Index(node)].local) links_[Index(node)].extra = extra;
}

void Network::Break(int node) {
  const StreamId id = links_[Index(node)].newest;
  if (!Knows(id) || !At(id).accepted) return;
  ++At(id).on_the_way;
  CoordinatorGivesUp(id);
  --At(id).on_the_way;
  NodeGivesUp(id);
}

// A machine that is back says that it does not know the stream.
void Network::ForgetVanished(int node) {
  for (size_t i = 0; i < streams_.size(); ++i) {
    const Stream& stream = *streams_[i];
    if (stream.node == node && stream.coordinator_open && !stream.node_open) {
      CoordinatorGivesUp(stream.id);
    }
  }
}

void Network::CheckSilence(int node) {
  Link& link = links_[Index(node)];
  const bool silent = Silent(node);
  if (silent == (link.silence % 2 == 1)) return;
  ++link.silence;
  if (!silent) return ForgetVanished(node);
  const uint32_t period = link.silence;
  for (size_t i = 0; i < streams_.size(); ++i) {
    Stream& stream = *streams_[i];
    const StreamId id = stream.id;
    if (stream.node != node || !stream.accepted) continue;
    stream.on_the_way += 2;
    timeline_->After(random_.Between(kKeepaliveLow, kKeepaliveHigh), [this, id, node, period] {
      --At(id).on_the_way;
      if (links_[Index(node)].silence == period) return NodeGivesUp(id);
      Recycle(id);
    });
    timeline_->After(random_.Between(kKeepaliveLow, kKeepaliveHigh), [this, id, node, period] {
      --At(id).on_the_way;
      if (links_[Index(node)].silence == period) return CoordinatorGivesUp(id);
      Recycle(id);
    });
  }
}

}  // namespace trainctl::sim
