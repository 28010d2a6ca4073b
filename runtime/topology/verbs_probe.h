// What the RDMA devices of this node say through libibverbs, which is loaded if it is there. sysfs
// shows the same in most places, but not whether this process may open a device, and in a
// container not always the types of addresses.
#ifndef TRAINCTL_RUNTIME_TOPOLOGY_VERBS_PROBE_H_
#define TRAINCTL_RUNTIME_TOPOLOGY_VERBS_PROBE_H_

#include <string>
#include <vector>

#include "runtime/topology/topology.h"

namespace trainctl {

struct VerbsPort {
  std::string device;
  int port = 1;
  PortState state = PortState::kUnknown;
  LinkLayer link_layer = LinkLayer::kUnknown;
  Answer dma_buf = Answer::kUnknown;  // takes GPU memory without a kernel module of NVIDIA's
  std::vector<Gid> gids;              // empty: ask sysfs
};

struct VerbsSeen {
  std::vector<VerbsPort> ports;
  std::vector<std::string> problems;  // devices that do not open, and why
};

VerbsSeen ProbeVerbs(const char* library = "libibverbs.so.1");

}  // namespace trainctl

#endif  // TRAINCTL_RUNTIME_TOPOLOGY_VERBS_PROBE_H_
