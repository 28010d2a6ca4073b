// This node's stream to a job's coordinator. The only place that dials it again.
#ifndef TRAINCTL_RUNTIME_NODE_JOIN_STREAM_H_
#define TRAINCTL_RUNTIME_NODE_JOIN_STREAM_H_

#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "proto/job.grpc.pb.h"
#include "runtime/base/loop.h"
#include "runtime/base/time.h"
#include "runtime/rpc/channel.h"
#include "runtime/rpc/streams.h"

namespace trainctl {

// Lives on the loop's thread.
class JoinStream {
 public:
  struct Callbacks {
    // What to send first on a new stream: the node's full state, and what is told again.
    std::function<std::vector<v1::NodeMessage>()> opening;
    std::function<void(const v1::NodeOrder& order)> on_order;
    // The stream ended (CANCELLED: by us), or could not begin.
    std::function<void(const absl::Status& why)> on_lost;
    // The coordinator, or the way to it, says no: trying again is the owner's decision.
    std::function<void(const absl::Status& why)> on_refused;
  };
  JoinStream(Loop* loop, ServiceAddress coordinator, Callbacks callbacks);
  ~JoinStream();
  JoinStream(const JoinStream&) = delete;
  JoinStream& operator=(const JoinStream&) = delete;

  // Dials now unless a stream lives, and again after every loss, until Close or a refusal.
  void Open();
  void Close();
  bool open() const { return stream_ != nullptr; }
  // Dropped while there is no stream: the next one starts with the full state.
  void Send(v1::NodeMessage message);

 private:
  using Stream = ClientStream<v1::NodeMessage, v1::NodeOrder>;
  void Dial();
  void Lost(const absl::Status& why);

  Loop* loop_;
  const ServiceAddress coordinator_;
  Callbacks callbacks_;
  Stream* stream_ = nullptr;  // deletes itself; detached before that
  Duration backoff_{0};
  Loop::TimerId retry_{};
};

}  // namespace trainctl

#endif  // TRAINCTL_RUNTIME_NODE_JOIN_STREAM_H_
