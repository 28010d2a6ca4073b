// All pairs of a node's devices, from the place of each in the PCI tree. Pure.
#ifndef TRAINCTL_RUNTIME_TOPOLOGY_DEVICE_LINKS_H_
#define TRAINCTL_RUNTIME_TOPOLOGY_DEVICE_LINKS_H_

#include <vector>

#include "runtime/topology/pci_path.h"
#include "runtime/topology/topology.h"

namespace trainctl {

// The links of `topology`, every pair once, in the order of its GPUs and then its NICs.
// REQUIRES: a place for each GPU and each NIC, in the same order.
std::vector<Link> LinksFromPlaces(const Topology& topology, const std::vector<PciPlace>& gpus,
                                  const std::vector<PciPlace>& nics);

}  // namespace trainctl

#endif  // TRAINCTL_RUNTIME_TOPOLOGY_DEVICE_LINKS_H_
