// Join streams between the daemons of nodes and the coordinator. As TCP does: in order and without
// loss while a stream lives; what is under way when it ends may be lost, and either end may notice
// the end long before the other.
#ifndef TRAINCTL_TESTS_SIM_NETWORK_H_
#define TRAINCTL_TESTS_SIM_NETWORK_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "launcher/coordinator/action.h"
#include "launcher/coordinator/event.h"
#include "tests/sim/random.h"
#include "tests/sim/timeline.h"

namespace trainctl::sim {

struct Order {
  Term term;
  Action action;
};

using StreamId = uint64_t;  // never used twice
inline constexpr StreamId kNoStream = 0;

class Network {
 public:
  struct Ends {
    // Of the coordinator. `listens`: whether somebody accepts streams.
    std::function<bool()> listens;
    std::function<void(StreamId, int node, Event)> on_event;
    std::function<void(StreamId)> on_node_closed;
    // Of a node. False if its machine stands still, so that it does not answer either.
    std::function<bool(int node)> answers;
    std::function<void(int node, StreamId, Order)> on_order;
    std::function<void(int node, StreamId)> on_coordinator_closed;
  };
  Network(Timeline* timeline, Random random, Ends ends)
      : timeline_(timeline), random_(random), ends_(std::move(ends)) {}

  void AddNode(bool local);  // numbered from 0; `local`: on the coordinator's machine, never cut

  // ---- Streams
  StreamId Dial(int node, std::vector<Event> opening);
  void Send(StreamId stream, Event event);  // by the node
  void Send(StreamId stream, Order order);  // by the coordinator
  void CloseByNode(StreamId stream);
  void CloseByCoordinator(StreamId stream);
  void CoordinatorDied();  // its kernel says that every stream is over
  // A machine lost power: nobody says that its streams are over.
  void NodeVanished(StreamId stream);
  void CoordinatorVanished();

  // ---- What is wrong with the link of a node
  void Cut(int node, bool up, bool down);  // up: from the node to the coordinator
  void Slow(int node, Duration extra);
  void Break(int node);  // both ends learn it at once
  // To be called when Ends::answers may have changed.
  void CheckSilence(int node);
  bool cut(int node) const { return links_[Index(node)].up_cut || links_[Index(node)].down_cut; }

 private:
  struct Link {
    bool local = false;
    bool up_cut = false;
    bool down_cut = false;
    Duration delay{0};
    Duration extra{0};
    uint32_t silence = 0;  // counts times of silence; odd: there is one now
    StreamId newest = kNoStream;
  };
  // Messages of one direction; an empty one is the end of the stream.
  template <typename T>
  struct Lane {
    std::deque<std::optional<T>> queue;
    size_t due = 0;  // of them, how many have been on the way long enough
    Instant last;
  };
  struct Stream {
    StreamId id = kNoStream;  // kNoStream: free
    int node = 0;
    bool node_open = false;
    bool coordinator_open = false;
    bool accepted = false;
    size_t on_the_way = 0;  // tasks that refer to it
    Lane<Event> up;
    Lane<Order> down;
  };
  static size_t Index(int node) { return static_cast<size_t>(node); }
  // The lower half of an id is a place in streams_.
  Stream& At(StreamId id) { return *streams_[static_cast<uint32_t>(id)]; }
  bool Knows(StreamId id) { return id != kNoStream && At(id).id == id; }
  bool Silent(int node) const;
  void Accept(StreamId id);
  Instant ArrivalOf(Instant* last, const Link& link);
  void PutUp(StreamId id, std::optional<Event> message);
  void PutDown(StreamId id, std::optional<Order> message);
  void DeliverUp(StreamId id);
  void DeliverDown(StreamId id);
  void NodeGivesUp(StreamId id);
  void CoordinatorGivesUp(StreamId id);
  void ForgetVanished(int node);
  void Recycle(StreamId id);

  Timeline* timeline_;
  Random random_;
  Ends ends_;
  std::vector<Link> links_;
  std::vector<std::unique_ptr<Stream>> streams_;
  std::vector<uint32_t> free_;
  uint64_t lives_ = 0;
};

}  // namespace trainctl::sim

#endif  // TRAINCTL_TESTS_SIM_NETWORK_H_
