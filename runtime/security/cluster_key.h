// The secret that the nodes of a cluster share. Whoever can read it is the cluster's operator, so
// it lies in a file that nobody else can read. Thread-safe.
#ifndef TRAINCTL_RUNTIME_SECURITY_CLUSTER_KEY_H_
#define TRAINCTL_RUNTIME_SECURITY_CLUSTER_KEY_H_

#include <array>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace trainctl {

using ClusterKey = std::array<uint8_t, 32>;

std::string SystemKeyPath();  // /etc/trainctl/cluster.key, root's
std::string UserKeyPath();    // ${XDG_CONFIG_HOME:-~/.config}/trainctl/cluster.key

// Writes 32 random bytes with mode 0600; folders are made as needed. ALREADY_EXISTS if there is a
// file: a key is never replaced, so that of two makers at once, on one machine or on two that share
// a home, both read the same one afterwards.
absl::Status WriteNewKey(const std::string& path);

// NOT_FOUND; PERMISSION_DENIED if anybody but its owner may read or write the file, or if it is
// neither ours nor root's; DATA_LOSS if it is no key.
absl::StatusOr<ClusterKey> ReadKey(const std::string& path);

// The key file that this user's processes use: root's is the system's, if there is one; anybody
// else's is the user's own, made now if it is missing.
absl::StatusOr<std::string> ChooseKeyFile();

}  // namespace trainctl

#endif  // TRAINCTL_RUNTIME_SECURITY_CLUSTER_KEY_H_
