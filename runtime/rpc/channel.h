// Dialling a service. Each dial is one connection, made for this channel alone: when it breaks,
// every call on it answers UNAVAILABLE, and dialling again is the owner's decision.
#ifndef TRAINCTL_RUNTIME_RPC_CHANNEL_H_
#define TRAINCTL_RUNTIME_RPC_CHANNEL_H_

#include <grpcpp/channel.h>

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "runtime/base/network.h"
#include "runtime/security/authority.h"

namespace trainctl {

struct DialledChannel {
  std::shared_ptr<grpc::Channel> channel;
  int pid = 0;  // of the process that listens, at the time it began to; 0: on another machine
};

// Where a service listens: a unix socket of this machine, or a TCP endpoint and who we are there.
struct ServiceAddress {
  std::string path;
  Endpoint endpoint;
  TlsIdentity identity;
  std::string node;  // whom we expect to find there; empty: any node of ours

  static ServiceAddress Unix(std::string path) { return {std::move(path), {}, {}, ""}; }
  std::string ToString() const { return path.empty() ? endpoint.ToString() : path; }
};

// Thread-safe. A unix socket is connected here and now: UNAVAILABLE if nobody listens. A TCP
// connection is made by the first call on the channel, which answers UNAVAILABLE if that fails;
// names are looked up on gRPC's threads.
absl::StatusOr<DialledChannel> Dial(const ServiceAddress& address);
// What a failed call on a channel means. UNAUTHENTICATED or PERMISSION_DENIED: the two sides do not
// believe each other, and the message says how to mend it; trying again is of no use. Anything else
// stays as it is.
absl::Status ExplainCall(const ServiceAddress& address, const absl::Status& status);
// The literal address in what gRPC calls a peer ("ipv4:10.0.0.1:4711"); empty if it is none.
std::string LiteralOf(absl::string_view peer);
absl::StatusOr<DialledChannel> DialUnix(const std::string& path);

}  // namespace trainctl

#endif  // TRAINCTL_RUNTIME_RPC_CHANNEL_H_
