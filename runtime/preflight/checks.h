// The checks that a child of preflight makes on this node's GPUs. Each prints one JSON object a
// line on stdout, flushed: {"begin": WHAT} before anything that may hang, then what came out. Bytes
// are compared on the GPU. An error is one that the check could not get past.
#ifndef TRAINCTL_RUNTIME_PREFLIGHT_CHECKS_H_
#define TRAINCTL_RUNTIME_PREFLIGHT_CHECKS_H_

#include <string>

#include "absl/status/status.h"

namespace trainctl {

// {"gpu": 0, "name", "pci", "uuid", "sm", "memory_bytes"} of each.
absl::Status ListGpus();

// Of each GPU: two patterns, one after the other, are written and read back.
// {"memory": 0, "bytes", "wrong", "gigabytes_per_second"}
absl::Status CheckMemory();

// Of each ordered pair, from the `skip`th on: a pattern is copied and compared.
// {"copy": 0, "to": 1, "bytes", "wrong", "peer_access", "gigabytes_per_second"}
absl::Status CheckCopies(int skip);

// One rank of an all-reduce with a known sum, of `ranks` on as many GPUs, through `folder`.
// {"all_reduce": RANK, "ranks", "bytes", "wrong", "nccl", "microseconds", "busbw"}
absl::Status CheckCollective(const std::string& folder, int rank, int ranks);

}  // namespace trainctl

#endif  // TRAINCTL_RUNTIME_PREFLIGHT_CHECKS_H_
