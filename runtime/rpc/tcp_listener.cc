#include "runtime/rpc/tcp_listener.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/clock.h"
#include "runtime/base/log.h"
#include "runtime/base/status.h"
#include "runtime/rpc/limits.h"

namespace trainctl {
namespace {

constexpr int kSpareDescriptors = 64;  // for the journal, timers, the unix socket and its callers

int MostDescriptors() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) < 0) return 1024;
  return static_cast<int>(std::min<rlim_t>(limit.rlim_cur, 1 << 20));
}

}  // namespace

absl::StatusOr<std::unique_ptr<TcpListener>> TcpListener::Listen(
    Loop* loop, const Endpoint& endpoint, const TlsIdentity& identity,
    const std::vector<grpc::Service*>& services, PeerCheck admit) {
  std::unique_ptr<TcpListener> listener(new TcpListener(loop));
  ASSIGN_OR_RETURN(listener->listening_, ListenTcp(endpoint));
  ASSIGN_OR_RETURN(listener->port_, PortOf(listener->listening_.get()));
  listener->max_fd_ = std::max(MostDescriptors() - kSpareDescriptors, kSpareDescriptors);
  grpc::ServerBuilder builder;
  SetNetworkLimits(builder);
  for (grpc::Service* service : services) builder.RegisterService(service);
  listener->acceptor_ = builder.experimental().AddExternalConnectionAcceptor(
      grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD,
      ServerTls(identity, std::move(admit)));
  listener->server_ = builder.BuildAndStart();
  if (listener->server_ == nullptr) {
    return absl::InternalError(absl::StrCat("start the RPC server for ", endpoint.ToString()));
  }
  loop->Watch(listener->listening_.get(), EPOLLIN,
              [self = listener.get()](uint32_t) { self->Accept(); });
  return listener;
}

void TcpListener::Close() {
  if (!listening_.valid()) return;
  loop_->Unwatch(listening_.get());
  listening_.Close();
}

TcpListener::~TcpListener() {
  Close();
  if (server_ != nullptr) server_->Shutdown(gpr_time_0(GPR_CLOCK_MONOTONIC));
}

void TcpListener::Accept() {
  for (;;) {
    Fd connection(::accept4(listening_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!connection.valid()) {
      if (errno == ECONNABORTED || errno == EINTR) continue;
      if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
        // The connection stays in the backlog and would wake us at once, over and over.
        LogWarning("accept on port ", port_, ": out of descriptors or memory; again in 100 ms");
        loop_->Modify(listening_.get(), 0);
        loop_->After(milliseconds(100), [this] {
          if (listening_.valid()) loop_->Modify(listening_.get(), EPOLLIN);
        });
      }
      return;
    }
    // Descriptors are numbered from below, so a high number means that many are open.
    if (connection.get() >= max_fd_) {
      // Whoever floods the port must not flood the log.
      if (Now() >= quiet_until_) {
        LogWarning("closed a connection on port ", port_, ": ", max_fd_, " descriptors are open");
        quiet_until_ = Now() + seconds(10);
      }
      continue;
    }
    const int on = 1;
    ::setsockopt(connection.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters parameters;
    parameters.listener_fd = listening_.get();
    parameters.fd = connection.Release();
    acceptor_->HandleNewConnection(&parameters);
  }
}

}  // namespace trainctl
