// The answer to one call, owed exactly once.
#ifndef TRAINCTL_RUNTIME_RPC_REPLY_H_
#define TRAINCTL_RUNTIME_RPC_REPLY_H_

#include <grpcpp/support/server_callback.h>

#include <utility>

#include "absl/status/status.h"
#include "runtime/base/check.h"
#include "runtime/rpc/rpc_status.h"

namespace trainctl {

// Move-only; may be answered from any thread. Dropped without an answer, it answers INTERNAL, so
// that no caller waits for something that was forgotten.
template <typename Response>
class Reply {
 public:
  Reply(grpc::ServerUnaryReactor* reactor, Response* response)
      : reactor_(reactor), response_(response) {}
  Reply(Reply&& other) noexcept
      : reactor_(std::exchange(other.reactor_, nullptr)), response_(other.response_) {}
  Reply& operator=(Reply&&) = delete;
  ~Reply() {
    if (reactor_ != nullptr) Fail(absl::InternalError("the call was dropped without an answer"));
  }

  void Send(Response response) {
    CHECK(reactor_ != nullptr);
    *response_ = std::move(response);
    std::exchange(reactor_, nullptr)->Finish(grpc::Status::OK);
  }
  void Fail(const absl::Status& status) {
    CHECK(reactor_ != nullptr && !status.ok());
    std::exchange(reactor_, nullptr)->Finish(ToGrpc(status));
  }

 private:
  grpc::ServerUnaryReactor* reactor_;
  Response* response_;
};

}  // namespace trainctl

#endif  // TRAINCTL_RUNTIME_RPC_REPLY_H_
