// What the ranks tell each other before NCCL connects them, and whether they fit together. Pure.
#ifndef TRAINCTL_RUNTIME_NCCL_NCCL_PEERS_H_
#define TRAINCTL_RUNTIME_NCCL_NCCL_PEERS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace trainctl {

struct NcclPeer {
  int32_t version = 0;
  std::string node;
  std::string pci;    // of its GPU
  std::string id;     // rank 0: the unique id
  std::string error;  // rank 0: why it could make none
};

std::string EncodePeer(const NcclPeer& peer);
// By rank. INVALID_ARGUMENT names the rank whose text is not one.
absl::StatusOr<std::vector<NcclPeer>> DecodePeers(const std::vector<std::string>& texts);

// FAILED_PRECONDITION, alike on every rank: different versions (names ranks, nodes and numbers),
// two ranks on one GPU, or rank 0's error.
absl::Status CheckPeers(const std::vector<NcclPeer>& peers);

}  // namespace trainctl

#endif  // TRAINCTL_RUNTIME_NCCL_NCCL_PEERS_H_
