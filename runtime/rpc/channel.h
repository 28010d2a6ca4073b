// Dialling a unix socket.
#ifndef TRAINCTL_RUNTIME_RPC_CHANNEL_H_
#define TRAINCTL_RUNTIME_RPC_CHANNEL_H_

#include <grpcpp/channel.h>

#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace trainctl {

struct DialledChannel {
  std::shared_ptr<grpc::Channel> channel;
  int pid = 0;  // of the process that listens, at the time it began to
};

// A channel on one connection, made here and now: UNAVAILABLE if nobody listens at `path`. When
// the connection breaks, every call on it answers UNAVAILABLE for good; dialling again is the
// owner's decision. Thread-safe.
absl::StatusOr<DialledChannel> DialUnix(const std::string& path);

}  // namespace trainctl

#endif  // TRAINCTL_RUNTIME_RPC_CHANNEL_H_
