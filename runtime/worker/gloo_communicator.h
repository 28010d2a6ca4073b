// Communicator of the CPU backend: our collectives over Gloo's unbound buffers (TCP), the
// all-reduce between the workers of one node through shared memory.
#ifndef TRAINCTL_RUNTIME_WORKER_GLOO_COMMUNICATOR_H_
#define TRAINCTL_RUNTIME_WORKER_GLOO_COMMUNICATOR_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "runtime/base/time.h"
#include "runtime/worker/communicator.h"
#include "runtime/worker/session.h"

namespace trainctl {

struct CommunicatorOptions {
  // Network interface; empty: GLOO_SOCKET_IFNAME, and without that `lo` if all workers are on this
  // node (local world size = world size), else the interface of the route to MASTER_ADDR.
  std::string interface;
  // All-reduce through memory that all workers map, if they are all on this node and can.
  bool shared_memory = true;
  Duration connect_timeout = seconds(60);
  Duration collective_timeout = seconds(300);  // of one collective; then DEADLINE_EXCEEDED
};

// Connects all workers of the epoch pairwise; collective. The addresses go through one
// Session::Exchange named "gloo". Collectives are recorded in the session's page. A lost session
// aborts the communicator. World size 1 needs no network. `session` outlives the communicator.
absl::StatusOr<std::unique_ptr<Communicator>> ConnectGloo(Session& session,
                                                          const CommunicatorOptions& options = {});

}  // namespace trainctl

#endif  // TRAINCTL_RUNTIME_WORKER_GLOO_COMMUNICATOR_H_
