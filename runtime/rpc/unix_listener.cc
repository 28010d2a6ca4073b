#include "runtime/rpc/unix_listener.h"

#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/server_builder.h>
#include <grpcpp/server_posix.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/log.h"
#include "runtime/base/status.h"
#include "runtime/rpc/limits.h"
#include "runtime/rpc/poller.h"

namespace trainctl {
class UnixListener::RefuseAll : public grpc::CallbackGenericService {
 private:
  class Refusal : public grpc::ServerGenericBidiReactor {
   public:
    Refusal() {
      Finish(grpc::Status(grpc::StatusCode::PERMISSION_DENIED,
                          "this socket serves its owner and root only; run trainctl as the user "
                          "who started the job or the daemon"));
    }
    void OnDone() override { delete this; }
  };
  grpc::ServerGenericBidiReactor* CreateReactor(grpc::GenericCallbackServerContext*) override {
    return new Refusal;
  }
};

bool UnixListener::AdmitOwnerAndRoot(const ucred& caller) {
  return caller.uid == 0 || caller.uid == ::geteuid();
}

UnixListener::UnixListener(Loop* loop, std::string path, Admit admit)
    : loop_(loop), path_(std::move(path)), admit_(std::move(admit)) {}

absl::StatusOr<std::unique_ptr<UnixListener>> UnixListener::Listen(
    Loop* loop, const std::string& path, const std::vector<grpc::Service*>& services, Admit admit) {
  RETURN_IF_ERROR(CheckRoomForGrpc());
  std::unique_ptr<UnixListener> listener(new UnixListener(loop, path, std::move(admit)));
  grpc::ServerBuilder builder;
  SetLimits(builder);
  for (grpc::Service* service : services) builder.RegisterService(service);
  listener->server_ = builder.BuildAndStart();
  if (listener->server_ == nullptr) {
    return absl::InternalError(absl::StrCat("start the RPC server for ", path));
  }
  ASSIGN_OR_RETURN(listener->listening_, ListenUnix(path, 0600));
  RETURN_IF_ERROR(SetNonBlocking(listener->listening_.get()));
  loop->Watch(listener->listening_.get(), EPOLLIN,
              [self = listener.get()](uint32_t) { self->Accept(); });
  return listener;
}

void UnixListener::Close() {
  if (!listening_.valid()) return;
  loop_->Unwatch(listening_.get());
  listening_.Close();
  ::unlink(path_.c_str());
}

UnixListener::~UnixListener() {
  Close();
  const auto at_once = gpr_time_0(GPR_CLOCK_MONOTONIC);
  if (server_ != nullptr) server_->Shutdown(at_once);
  if (refusing_server_ != nullptr) refusing_server_->Shutdown(at_once);
}

grpc::Server* UnixListener::RefusingServer() {
  if (refusing_server_ == nullptr) {
    refuse_all_ = std::make_unique<RefuseAll>();
    grpc::ServerBuilder builder;
    SetLimits(builder);
    builder.RegisterCallbackGenericService(refuse_all_.get());
    refusing_server_ = builder.BuildAndStart();
  }
  return refusing_server_.get();
}

void UnixListener::Accept() {
  for (;;) {
    Fd connection(::accept4(listening_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!connection.valid()) {
      if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
        // The connection stays in the backlog and would wake us at once, over and over.
        LogWarning("accept on ", path_, ": out of descriptors or memory; again in 100 ms");
        loop_->Modify(listening_.get(), 0);
        loop_->After(milliseconds(100), [this] {
          if (listening_.valid()) loop_->Modify(listening_.get(), EPOLLIN);
        });
      }
      return;
    }
    ucred caller{};
    socklen_t size = sizeof(caller);
    if (::getsockopt(connection.get(), SOL_SOCKET, SO_PEERCRED, &caller, &size) < 0) continue;
    grpc::Server* server = admit_(caller) ? server_.get() : RefusingServer();
    if (server != server_.get()) {
      LogWarning("refused process ", caller.pid, " of user ", caller.uid, " on ", path_);
    }
    if (server != nullptr) grpc::AddInsecureChannelFromFd(server, connection.Release());
  }
}

}  // namespace trainctl
