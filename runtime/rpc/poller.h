// The thread that waits for gRPC's sockets, in place of gRPC's own.
//
// With the epoll1 engine, gRPC (1.51, src/cpp/common/completion_queue_cc.cc) serves the callback
// API by two threads that each wait for a second and then sleep for 100 ms. They wake an idle
// process twice a second, and in a quiet one they sleep at the same time: nobody then looks at a
// socket for up to 90 ms, which is longer than a whole restart takes here. gRPC has a second mode,
// in which a callback runs when its event is seen and the application supplies the thread that
// looks. We choose that one: this folder's CMakeLists.txt points the question "is there a poller in
// the background" at our answer, and this thread makes the answer true.
#ifndef TRAINCTL_RUNTIME_RPC_POLLER_H_
#define TRAINCTL_RUNTIME_RPC_POLLER_H_

#include "absl/status/status.h"

namespace trainctl {

// Starts the thread unless it runs already; it lives as long as the process. To be called before a
// channel or a server is made. Thread-safe.
void EnsureGrpcPoller();

// RESOURCE_EXHAUSTED: limits leave no room for the threads that gRPC and the above start, without
// which gRPC would hang or abort, or for its descriptors, without which it closes connections and
// does not say why. Looks once, when it is first called: before either. Thread-safe.
absl::Status CheckRoomForGrpc();

}  // namespace trainctl

#endif  // TRAINCTL_RUNTIME_RPC_POLLER_H_
