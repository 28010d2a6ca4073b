// A picture of a node: sockets, PCIe switches, GPUs, NICs and the NVLinks between GPUs. Pure.
#ifndef TRAINCTL_LAUNCHER_TOPOLOGY_PICTURE_H_
#define TRAINCTL_LAUNCHER_TOPOLOGY_PICTURE_H_

#include <string>

#include "runtime/topology/topology.h"

namespace trainctl {

std::string TopologyPicture(const Topology& topology);  // SVG

}  // namespace trainctl

#endif  // TRAINCTL_LAUNCHER_TOPOLOGY_PICTURE_H_
