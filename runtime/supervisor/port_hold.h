// Holds a TCP port for a worker that will listen on it later: a socket that is bound with
// SO_REUSEADDR and never listens keeps the kernel from giving the port to anybody who asks for any
// port, while a program that binds this very port with SO_REUSEADDR, as rendezvous stores do, gets
// it.
#ifndef TRAINCTL_RUNTIME_SUPERVISOR_PORT_HOLD_H_
#define TRAINCTL_RUNTIME_SUPERVISOR_PORT_HOLD_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "runtime/base/fd.h"

namespace trainctl {

// Released when destroyed. Not thread-safe.
struct PortHold {
  Fd socket;
  uint16_t port = 0;  // 0: none is held

  // A port that is free on all IPv6 and IPv4 addresses, or on all IPv4 ones where there is no IPv6.
  static absl::StatusOr<PortHold> Take();
};

}  // namespace trainctl

#endif  // TRAINCTL_RUNTIME_SUPERVISOR_PORT_HOLD_H_
