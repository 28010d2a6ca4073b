#include "runtime/rpc/channel.h"

#include <grpcpp/create_channel_posix.h>
#include <grpcpp/support/channel_arguments.h>
#include <sys/socket.h>

#include "runtime/base/fd.h"
#include "runtime/base/status.h"
#include "runtime/rpc/poller.h"
#include "runtime/rpc/unix_listener.h"

namespace trainctl {

absl::StatusOr<DialledChannel> DialUnix(const std::string& path) {
  ASSIGN_OR_RETURN(Fd fd, ConnectUnix(path));
  RETURN_IF_ERROR(SetNonBlocking(fd.get()));
  ucred peer{};
  socklen_t size = sizeof(peer);
  ::getsockopt(fd.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size);
  EnsureGrpcPoller();
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(kMaxMessageBytes);
  arguments.SetMaxSendMessageSize(kMaxMessageBytes);
  arguments.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  arguments.SetInt(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, kStreamWindowBytes);
  return DialledChannel{
      grpc::CreateCustomInsecureChannelFromFd("localhost", fd.Release(), arguments), peer.pid};
}

}  // namespace trainctl
