// The Join streams of a job's nodes: who is connected, and orders to them.
#ifndef TRAINCTL_LAUNCHER_NODE_LINKS_H_
#define TRAINCTL_LAUNCHER_NODE_LINKS_H_

#include <functional>
#include <map>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "launcher/coordinator/action.h"
#include "proto/job.pb.h"
#include "runtime/base/ids.h"
#include "runtime/rpc/streams.h"
#include "runtime/security/peer_name.h"

namespace trainctl {

using NodeStream = ServerStream<v1::NodeMessage, v1::NodeOrder>;

// Lives on the loop's thread.
class NodeLinks {
 public:
  struct Callbacks {
    // A stream of another machine, or of a newer daemon, under the name of one that is there takes
    // its place, unless the newcomer is refused before this returns.
    std::function<void(const v1::NodeState& state)> on_joined;
    // The stream that `on_joined` announced broke. Not called for one that a newer replaced.
    std::function<void(const std::string& node, Incarnation incarnation)> on_left;
    std::function<void(const std::string& node, Incarnation incarnation, v1::NodeMessage message)>
        on_message;
  };
  NodeLinks(Term term, Callbacks callbacks) : term_(term), callbacks_(std::move(callbacks)) {}

  // A new stream, before anything is read from it. `caller`: who opened it, by TLS; only the node
  // that it names may speak on it.
  void Add(NodeStream* stream, std::optional<PeerName> caller);
  // With our term. Dropped if the node is not connected: it tells its state when it is.
  void Send(absl::string_view node, v1::NodeOrder order);
  bool Has(absl::string_view node) const { return by_node_.find(node) != by_node_.end(); }
  void SendToAll(const v1::NodeOrder& order);
  // Ends the stream of this life of the node; nothing more of it is told.
  void Refuse(const RefuseNode& refusal);
  // A node that was released hangs up; `on_empty` runs when all have.
  void AwaitHangUp(std::function<void()> on_empty);

 private:
  struct Joined {
    std::string node;
    Incarnation incarnation;
    std::string machine;
  };
  void OnMessage(NodeStream* stream, const std::optional<PeerName>& caller,
                 v1::NodeMessage message);
  void First(NodeStream* stream, const std::optional<PeerName>& caller,
             const v1::NodeMessage& message);
  void Left(NodeStream* stream);

  const Term term_;
  Callbacks callbacks_;
  std::map<std::string, NodeStream*, std::less<>> by_node_;
  std::map<NodeStream*, Joined> joined_;  // those in by_node_, and replaced_
  NodeStream* replaced_ = nullptr;        // while it is not known whether the newcomer is refused
  int open_streams_ = 0;
  std::function<void()> on_empty_;
};

}  // namespace trainctl

#endif  // TRAINCTL_LAUNCHER_NODE_LINKS_H_
