// The one place in runtime/node/ where frames of the shim become messages of the Join stream and
// back. Texts from workers are made valid UTF-8 here, because the wire's strings must be.
#ifndef TRAINCTL_RUNTIME_NODE_WIRE_H_
#define TRAINCTL_RUNTIME_NODE_WIRE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "proto/job.pb.h"
#include "runtime/base/network.h"
#include "runtime/local/frames.h"
#include "runtime/node/node_state.h"

namespace trainctl {

// What is true of this node whatever its shim does.
struct NodeFacts {
  std::string node;  // unique within the job
  int64_t incarnation = 0;
  std::string machine;  // the same for all daemons of one machine, as the network sees it
  std::vector<InterfaceAddress> addresses;  // where other nodes may reach it, the best first
  std::string topology;
  int node_rank = -1;  // asked for; -1: any
  int cores = 1;
  std::string devices = {};  // as in v1::NodeState
};

// First on every Join stream. `unfit`: why the node can take no workers; empty: it can take
// `slots`.
v1::NodeMessage StateMessage(const NodeFacts& facts, int slots, const std::string& unfit,
                             const NodeState& state);
// nullopt: a frame that is not for the coordinator, or output, of which several go in one message.
std::optional<v1::NodeMessage> ToMessage(const frame::Frame& frame);
void Fill(frame::Output frame, v1::Output* out);
// nullopt: an order of a kind that this version does not know, or that is not one frame.
std::optional<frame::Frame> ToFrame(const v1::NodeOrder& order);
frame::OutputFrom ToFrame(const v1::OutputFrom& from);

}  // namespace trainctl

#endif  // TRAINCTL_RUNTIME_NODE_WIRE_H_
