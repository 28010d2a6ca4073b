// PCIe link speeds as sysfs and NCCL write them. Pure.
#ifndef TRAINCTL_RUNTIME_TOPOLOGY_PCIE_SPEED_H_
#define TRAINCTL_RUNTIME_TOPOLOGY_PCIE_SPEED_H_

#include "absl/strings/string_view.h"

namespace trainctl {

int PcieGeneration(absl::string_view speed);  // "16.0 GT/s PCIe" -> 4; 0: unknown
// What a link carries one way, in GB/s, after its encoding and protocol; 0: unknown.
double PcieGigabytesPerSecond(int generation, int width);

}  // namespace trainctl

#endif  // TRAINCTL_RUNTIME_TOPOLOGY_PCIE_SPEED_H_
