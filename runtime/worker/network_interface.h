// Which network interface the workers of a job use between each other.
#ifndef TRAINCTL_RUNTIME_WORKER_NETWORK_INTERFACE_H_
#define TRAINCTL_RUNTIME_WORKER_NETWORK_INTERFACE_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace trainctl {

// GLOO_SOCKET_IFNAME if it is set (the first name of a list); `lo` if all workers are on one node;
// else the interface that the kernel would send from to MASTER_ADDR.
absl::StatusOr<std::string> ChooseInterface(bool one_node);

// The interface that the kernel would use to reach `address`, a name or a number.
absl::StatusOr<std::string> InterfaceTowards(const std::string& address);

}  // namespace trainctl

#endif  // TRAINCTL_RUNTIME_WORKER_NETWORK_INTERFACE_H_
