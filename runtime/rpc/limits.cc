#include "runtime/rpc/limits.h"

#include <grpc/support/log.h>
#include <grpcpp/resource_quota.h>

#include "runtime/base/log.h"
#include "runtime/rpc/poller.h"

namespace trainctl {
namespace {

constexpr int kConnectMillis = 5'000;
constexpr int kHandshakeMillis = 10'000;
constexpr int kMaxStreams = 256;
constexpr int kMaxMetadataBytes = 8 << 10;
constexpr size_t kQuotaBytes = size_t{256} << 20;

}  // namespace

void TakeOverLog() {
  static const bool done = [] {
    gpr_set_log_function([](gpr_log_func_args* line) { LogDebug("gRPC: ", line->message); });
    return true;
  }();
  (void)done;
}

void SetLimits(grpc::ServerBuilder& builder) {
  EnsureGrpcPoller();
  builder.SetMaxReceiveMessageSize(kMaxMessageBytes);
  builder.SetMaxSendMessageSize(kMaxMessageBytes);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, kMaxStreams);
  builder.AddChannelArgument(GRPC_ARG_MAX_METADATA_SIZE, kMaxMetadataBytes);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, kStreamWindowBytes);
  grpc::ResourceQuota quota("calls");
  quota.Resize(kQuotaBytes);
  quota.SetMaxThreads(4);
  builder.SetResourceQuota(quota);
}

void SetNetworkLimits(grpc::ServerBuilder& builder) {
  TakeOverLog();
  SetLimits(builder);
  builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, kHandshakeMillis);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveMillis);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveMillis);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS,
                             kKeepaliveMillis / 2);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
}

grpc::ChannelArguments LocalChannelArguments() {
  EnsureGrpcPoller();
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(kMaxMessageBytes);
  arguments.SetMaxSendMessageSize(kMaxMessageBytes);
  arguments.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  arguments.SetInt(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, kStreamWindowBytes);
  return arguments;
}

grpc::ChannelArguments NetworkChannelArguments() {
  TakeOverLog();
  grpc::ChannelArguments arguments = LocalChannelArguments();
  // Nodes speak to each other, never through the proxy that the environment may name.
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  // Each dial is a connection of its own: dialling again is its owner's decision, not gRPC's.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, kConnectMillis);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, kConnectMillis);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveMillis);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveMillis);
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  return arguments;
}

}  // namespace trainctl
