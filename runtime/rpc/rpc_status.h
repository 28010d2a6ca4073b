// absl::Status on our side, grpc::Status on the wire: the same codes, the same message.
#ifndef TRAINCTL_RUNTIME_RPC_RPC_STATUS_H_
#define TRAINCTL_RUNTIME_RPC_RPC_STATUS_H_

#include <grpcpp/support/status.h>

#include <string>

#include "absl/status/status.h"

namespace trainctl {

inline grpc::Status ToGrpc(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  return grpc::Status(static_cast<grpc::StatusCode>(status.raw_code()),
                      std::string(status.message()));
}

inline absl::Status FromGrpc(const grpc::Status& status) {
  if (status.ok()) return absl::OkStatus();
  return absl::Status(static_cast<absl::StatusCode>(status.error_code()), status.error_message());
}

}  // namespace trainctl

#endif  // TRAINCTL_RUNTIME_RPC_RPC_STATUS_H_
