// NCCL's topology file (NCCL_TOPO_DUMP_FILE, or what a cloud gives as NCCL_TOPO_FILE). Pure.
// Bears what real files show: missing and empty attributes, a NUMA id of -1, GPUs without a gpu
// element (told by their PCI class), NVLinks to switches that a virtual machine does not see.
#ifndef TRAINCTL_RUNTIME_TOPOLOGY_NCCL_XML_H_
#define TRAINCTL_RUNTIME_TOPOLOGY_NCCL_XML_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "runtime/topology/topology.h"

namespace trainctl {

// INVALID_ARGUMENT "FILE:LINE: …" if it is no such file. Names and UUIDs of GPUs are not in it.
absl::StatusOr<Topology> ParseNcclXml(absl::string_view text, absl::string_view file);

}  // namespace trainctl

#endif  // TRAINCTL_RUNTIME_TOPOLOGY_NCCL_XML_H_
