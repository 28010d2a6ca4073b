// How near two PCI devices are, from where they hang in the tree. Pure.
#ifndef TRAINCTL_RUNTIME_TOPOLOGY_PCI_PATH_H_
#define TRAINCTL_RUNTIME_TOPOLOGY_PCI_PATH_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "runtime/topology/topology.h"

namespace trainctl {

struct PciPlace {
  std::string root;                   // host bridge, "pci0000:3a"; empty: unknown
  std::vector<std::string> switches;  // from the root down, a whole switch each
  std::string parent;                 // the bridge right above the device; empty: none
  int numa = -1;
};

PciPath PathBetween(const PciPlace& a, const PciPlace& b);

// From the resolved path of a device in sysfs: "…/pci0000:3a/0000:3a:00.0/0000:3b:00.0". A PCIe
// switch shows there as two levels of bridges, a root port as one.
PciPlace PlaceFromSysfs(absl::string_view device_path, int numa);

// "0000:3b:00.0" from "0:3B:0.0", "00000000:3b:00.0" or "3b:00.0"; nullopt: no PCI address.
std::optional<std::string> NormalPciAddress(absl::string_view text);

}  // namespace trainctl

#endif  // TRAINCTL_RUNTIME_TOPOLOGY_PCI_PATH_H_
