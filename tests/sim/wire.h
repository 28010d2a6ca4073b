// Between the shim's frames and what coordinator and daemon tell each other: what the two wire
// files of launcher and runtime/node do, without the messages in between.
#ifndef TRAINCTL_TESTS_SIM_WIRE_H_
#define TRAINCTL_TESTS_SIM_WIRE_H_

#include <cstdint>
#include <optional>
#include <string>

#include "launcher/coordinator/event.h"
#include "runtime/local/frames.h"
#include "runtime/node/node_state.h"
#include "tests/sim/network.h"

namespace trainctl::sim {

class Node;

// nullopt: the coordinator does not hear of it.
std::optional<Event> EventOf(const std::string& node, int64_t incarnation,
                             const frame::Frame& frame);
NodeJoined JoinedOf(const Node& node, int64_t incarnation, int slots, const NodeState& state);
// nullopt: nothing for the shim.
std::optional<frame::Frame> FrameOf(const Order& order);

}  // namespace trainctl::sim

#endif  // TRAINCTL_TESTS_SIM_WIRE_H_
