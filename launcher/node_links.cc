#include "launcher/node_links.h"

#include <utility>

#include "absl/status/status.h"
#include "runtime/rpc/tls.h"

namespace trainctl {

void NodeLinks::Add(NodeStream* stream, std::optional<PeerName> caller) {
  ++open_streams_;
  stream->on_message = [this, stream, caller](v1::NodeMessage message) {
    OnMessage(stream, caller, std::move(message));
  };
  stream->on_cancel = [this, stream] { Left(stream); };
  stream->on_closed = [this] {
    if (--open_streams_ == 0 && on_empty_) std::exchange(on_empty_, nullptr)();
  };
  stream->Begin();
}

void NodeLinks::OnMessage(NodeStream* stream, const std::optional<PeerName>& caller,
                          v1::NodeMessage message) {
  const auto found = joined_.find(stream);
  if (found == joined_.end()) return First(stream, caller, message);
  callbacks_.on_message(found->second.node, found->second.incarnation, std::move(message));
}

void NodeLinks::First(NodeStream* stream, const std::optional<PeerName>& caller,
                      const v1::NodeMessage& message) {
  if (!message.has_state() || message.state().node().empty()) {
    return stream->Finish(absl::InvalidArgumentError("the first message must be the node's state"));
  }
  const std::string& node = message.state().node();
  if (caller.has_value()) {
    if (absl::Status proved = ExpectNode(node)(*caller); !proved.ok()) {
      return stream->Finish(std::move(proved));
    }
  }
  const Incarnation incarnation(message.state().incarnation());
  const std::string& machine = message.state().machine();
  NodeStream* old = nullptr;
  if (const auto found = by_node_.find(node); found != by_node_.end()) {
    old = found->second;
    const Joined& there = joined_[old];
    if (there.machine == machine && there.incarnation > incarnation) {
      return stream->Finish(absl::AbortedError("a newer daemon of this node has joined"));
    }
  }
  by_node_[node] = stream;
  joined_[stream] = {node, incarnation, machine};
  replaced_ = old;
  callbacks_.on_joined(message.state());
  if (std::exchange(replaced_, nullptr) == nullptr) return;
  joined_.erase(old);
  old->Finish(absl::AbortedError("the node has joined again"));
}

void NodeLinks::Left(NodeStream* stream) {
  const auto found = joined_.find(stream);
  if (found == joined_.end()) return;
  const Joined left = found->second;
  joined_.erase(found);
  by_node_.erase(left.node);
  callbacks_.on_left(left.node, left.incarnation);
}

void NodeLinks::Send(absl::string_view node, v1::NodeOrder order) {
  const auto found = by_node_.find(node);
  if (found == by_node_.end()) return;
  order.set_term(term_.value);
  found->second->Send(std::move(order));
}

void NodeLinks::SendToAll(const v1::NodeOrder& order) {
  for (const auto& [node, stream] : by_node_) Send(node, order);
}

void NodeLinks::Refuse(const RefuseNode& refusal) {
  const auto found = by_node_.find(refusal.node);
  if (found == by_node_.end()) return;
  NodeStream* stream = found->second;
  const Joined& joined = joined_[stream];
  if (joined.incarnation != refusal.incarnation || joined.machine != refusal.machine) return;
  if (replaced_ != nullptr) {
    found->second = std::exchange(replaced_, nullptr);
  } else {
    by_node_.erase(found);
  }
  joined_.erase(stream);
  stream->Finish(absl::FailedPreconditionError(refusal.reason));
}

void NodeLinks::AwaitHangUp(std::function<void()> on_empty) {
  on_empty_ = std::move(on_empty);
  if (open_streams_ == 0) std::exchange(on_empty_, nullptr)();
}

}  // namespace trainctl
