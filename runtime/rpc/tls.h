// Mutual TLS for gRPC, in which a peer is known by the name in its certificate. Thread-safe.
#ifndef TRAINCTL_RUNTIME_RPC_TLS_H_
#define TRAINCTL_RUNTIME_RPC_TLS_H_

#include <grpcpp/security/credentials.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server_context.h>

#include <functional>
#include <memory>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/security/authority.h"
#include "runtime/security/peer_name.h"

namespace trainctl {

// Asked on gRPC's threads about a peer whose certificate is believed, once for each connection. An
// error refuses the connection, before a byte of any call.
using PeerCheck = std::function<absl::Status(const PeerName& peer)>;

// The usual rule of a listener: nodes, because whoever can make a node's certificate holds the key,
// and of the users root and ours.
absl::Status AdmitNodesAndOwner(const PeerName& peer);
// The usual rule of a caller: the node of this name, which may be the whole name or its first
// label; with an empty one any node.
PeerCheck ExpectNode(std::string name);

std::shared_ptr<grpc::ServerCredentials> ServerTls(const TlsIdentity& identity, PeerCheck check);
std::shared_ptr<grpc::ChannelCredentials> ChannelTls(const TlsIdentity& identity, PeerCheck check);

// Who made this call: the name in the certificate, or nullopt on a unix socket, whose listener
// admits its owner and root only.
absl::StatusOr<std::optional<PeerName>> CallerOf(const grpc::ServerContextBase& context);

}  // namespace trainctl

#endif  // TRAINCTL_RUNTIME_RPC_TLS_H_
