// The listening side of a unix socket: our own accept loop, because gRPC's does not tell who calls.
#ifndef TRAINCTL_RUNTIME_RPC_UNIX_LISTENER_H_
#define TRAINCTL_RUNTIME_RPC_UNIX_LISTENER_H_

#include <grpcpp/server.h>
#include <sys/socket.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/base/fd.h"
#include "runtime/base/loop.h"

namespace trainctl {

// Takes the caller's identity from the kernel when it connects and decides there, once for every
// call of the connection: those let in reach `services`, all others a second server on which every
// call, known or not, answers PERMISSION_DENIED. So no service needs to ask who calls.
class UnixListener {
 public:
  using Admit = std::function<bool(const ucred& caller)>;
  static bool AdmitOwnerAndRoot(const ucred& caller);  // the usual rule

  // Listens at `path` (mode 0600) and accepts on `loop`. The services must outlive the listener.
  static absl::StatusOr<std::unique_ptr<UnixListener>> Listen(
      Loop* loop, const std::string& path, const std::vector<grpc::Service*>& services,
      Admit admit = AdmitOwnerAndRoot);
  // No new connection from here on, and the path is removed; running calls go on.
  void Close();
  // Calls that still run are cancelled. The loop must run on another thread or be at an end with
  // no call left.
  ~UnixListener();
  UnixListener(const UnixListener&) = delete;
  UnixListener& operator=(const UnixListener&) = delete;

 private:
  class RefuseAll;
  UnixListener(Loop* loop, std::string path, Admit admit);
  void Accept();
  grpc::Server* RefusingServer();

  Loop* loop_;
  std::string path_;
  Admit admit_;
  Fd listening_;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<RefuseAll> refuse_all_;
  std::unique_ptr<grpc::Server> refusing_server_;  // made for the first caller that is refused
};

}  // namespace trainctl

#endif  // TRAINCTL_RUNTIME_RPC_UNIX_LISTENER_H_
