// What both sides of every connection agree on.
#ifndef TRAINCTL_RUNTIME_RPC_LIMITS_H_
#define TRAINCTL_RUNTIME_RPC_LIMITS_H_

#include <grpcpp/server_builder.h>
#include <grpcpp/support/channel_arguments.h>

namespace trainctl {

inline constexpr int kMaxMessageBytes = 16 << 20;
// Fixed on both sides: gRPC's probes for a better one answer each message with four more frames.
inline constexpr int kStreamWindowBytes = 1 << 20;
// A caller that hears nothing for this long asks whether the other side is still there, and gives
// the connection up when it has no answer after as long again. The server allows it twice as often,
// and asks by itself, because callers may vanish, too.
inline constexpr int kKeepaliveMillis = 10'000;

// What gRPC has to say goes to our log, at the level of details: callers are told in their status.
// Idempotent; done by whoever listens or dials over a network.
void TakeOverLog();
// Each of the following also sees to it that somebody waits for gRPC's sockets (poller.h).
// Of a server for one owner's own processes.
void SetLimits(grpc::ServerBuilder& builder);
// More of the same for connections that cross a network.
void SetNetworkLimits(grpc::ServerBuilder& builder);
grpc::ChannelArguments LocalChannelArguments();
grpc::ChannelArguments NetworkChannelArguments();

}  // namespace trainctl

#endif  // TRAINCTL_RUNTIME_RPC_LIMITS_H_
