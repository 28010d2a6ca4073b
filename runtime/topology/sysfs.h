// What the kernel knows of a node: CPUs, NUMA, PCI devices, network devices. Everything is read
// below `root`, empty for this machine, so that a recorded tree can stand in for it.
#ifndef TRAINCTL_RUNTIME_TOPOLOGY_SYSFS_H_
#define TRAINCTL_RUNTIME_TOPOLOGY_SYSFS_H_

#include <map>
#include <string>
#include <vector>

#include "runtime/topology/pci_path.h"
#include "runtime/topology/topology.h"

namespace trainctl {

struct PciDevice {
  std::string address;
  std::string device_class;  // "0x030200"
  std::string device_id;     // "10de:2330"
  PciPlace place;
  std::vector<std::string> bridges;  // addresses, from the root down
  PcieLink pcie;
};

// By address.
std::map<std::string, PciDevice> ReadPciDevices(const std::string& root);

// Ports of RDMA devices, then Ethernet interfaces on a PCI device that is none of those.
std::vector<Nic> ReadNics(const std::string& root, const std::map<std::string, PciDevice>& devices);

// CPUs, NUMA nodes, hypervisor, IOMMU, GPUDirect module, driver's version.
void ReadNode(const std::string& root, Topology* topology);

// Of these bridges: some redirects traffic between peers to the CPU. Unknown where the kernel shows
// this user only the beginning of their configuration. Adds those that do to `redirecting`.
Answer ReadAcs(const std::string& root, const std::vector<std::string>& bridges,
               std::vector<std::string>* redirecting);

}  // namespace trainctl

#endif  // TRAINCTL_RUNTIME_TOPOLOGY_SYSFS_H_
