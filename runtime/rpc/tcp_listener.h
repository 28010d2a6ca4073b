// The listening side of TCP, for peers that prove who they are by mutual TLS.
#ifndef TRAINCTL_RUNTIME_RPC_TCP_LISTENER_H_
#define TRAINCTL_RUNTIME_RPC_TCP_LISTENER_H_

#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/base/fd.h"
#include "runtime/base/loop.h"
#include "runtime/base/network.h"
#include "runtime/rpc/tls.h"
#include "runtime/security/authority.h"

namespace trainctl {

// Connections are accepted on `loop`, so that no more are taken than the process has descriptors
// for with some to spare; one beyond that is closed at once. Who is neither encrypted nor named
// within 10 s is cut off.
class TcpListener {
 public:
  // The services must outlive the listener.
  static absl::StatusOr<std::unique_ptr<TcpListener>> Listen(
      Loop* loop, const Endpoint& endpoint, const TlsIdentity& identity,
      const std::vector<grpc::Service*>& services, PeerCheck admit = AdmitNodesAndOwner);
  int port() const { return port_; }
  // No new connection from here on; running calls go on.
  void Close();
  // Calls that still run are cancelled.
  ~TcpListener();
  TcpListener(const TcpListener&) = delete;
  TcpListener& operator=(const TcpListener&) = delete;

 private:
  explicit TcpListener(Loop* loop) : loop_(loop) {}
  void Accept();

  Loop* loop_;
  Fd listening_;
  int port_ = 0;
  int max_fd_ = 0;
  Instant quiet_until_;
  std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> acceptor_;
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace trainctl

#endif  // TRAINCTL_RUNTIME_RPC_TCP_LISTENER_H_
