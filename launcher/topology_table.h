// A topology for people, as `nvidia-smi topo -m` shows it. Pure.
#ifndef TRAINCTL_LAUNCHER_TOPOLOGY_TABLE_H_
#define TRAINCTL_LAUNCHER_TOPOLOGY_TABLE_H_

#include <string>

#include "runtime/topology/topology.h"

namespace trainctl {

// How two devices are connected: "NV18", "PIX" … "SYS", "?".
std::string ConnectionWord(const Topology& topology, const std::string& a, const std::string& b);

// The node, its GPUs with what they can do at most, its NICs, and the table of connections.
std::string TopologyTable(const Topology& topology);

}  // namespace trainctl

#endif  // TRAINCTL_LAUNCHER_TOPOLOGY_TABLE_H_
