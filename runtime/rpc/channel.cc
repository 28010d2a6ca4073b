#include "runtime/rpc/channel.h"

#include <grpcpp/create_channel.h>
#include <grpcpp/create_channel_posix.h>
#include <grpcpp/support/channel_arguments.h>
#include <sys/socket.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "runtime/base/fd.h"
#include "runtime/base/status.h"
#include "runtime/rpc/limits.h"
#include "runtime/rpc/poller.h"
#include "runtime/rpc/tls.h"

namespace trainctl {
namespace {

std::string TargetOf(const Endpoint& endpoint) {
  const bool v6 = endpoint.name.find(':') != std::string::npos;
  if (v6) return absl::StrCat("ipv6:[", endpoint.name, "]:", endpoint.port);
  return absl::StrCat(IsLiteralAddress(endpoint.name) ? "ipv4:" : "dns:///", endpoint.ToString());
}

}  // namespace

absl::StatusOr<DialledChannel> DialUnix(const std::string& path) {
  RETURN_IF_ERROR(CheckRoomForGrpc());
  ASSIGN_OR_RETURN(Fd fd, ConnectUnix(path));
  RETURN_IF_ERROR(SetNonBlocking(fd.get()));
  ucred peer{};
  socklen_t size = sizeof(peer);
  ::getsockopt(fd.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size);
  return DialledChannel{
      grpc::CreateCustomInsecureChannelFromFd("localhost", fd.Release(), LocalChannelArguments()),
      peer.pid};
}

absl::StatusOr<DialledChannel> Dial(const ServiceAddress& address) {
  if (!address.path.empty()) return DialUnix(address.path);
  return DialledChannel{
      grpc::CreateCustomChannel(TargetOf(address.endpoint),
                                ChannelTls(address.identity, ExpectNode(address.node)),
                                NetworkChannelArguments()),
      0};
}

std::string LiteralOf(absl::string_view peer) {
  if (!absl::ConsumePrefix(&peer, "ipv4:") && !absl::ConsumePrefix(&peer, "ipv6:")) return "";
  // gRPC escapes the brackets of IPv6.
  std::string text = absl::StrReplaceAll(peer, {{"%5B", "["}, {"%5D", "]"}});
  const absl::StatusOr<Endpoint> endpoint = ParseEndpoint(text, 0);
  if (!endpoint.ok()) return "";
  absl::string_view name = endpoint->name;
  // What an IPv4 caller is called on a socket for both kinds.
  absl::ConsumePrefix(&name, "::ffff:");
  return std::string(name);
}

absl::Status ExplainCall(const ServiceAddress& address, const absl::Status& status) {
  if (!absl::IsUnavailable(status) || !address.path.empty()) return status;
  const absl::string_view text = status.message();
  const std::string at = absl::StrCat("reach ", address.ToString(), ": ");
  if (absl::StrContains(text, "certificate verify failed")) {
    return absl::UnauthenticatedError(absl::StrCat(
        at,
        "its certificate is not of our authority. Both sides must have the same cluster key: "
        "copy ~/.config/trainctl/cluster.key (root: /etc/trainctl/cluster.key) from that "
        "machine to this one, mode 0600, and see that the clocks agree within a day"));
  }
  constexpr absl::string_view kVerdict = "PERMISSION_DENIED: ";
  if (const size_t verdict = text.find(kVerdict); verdict != absl::string_view::npos) {
    return absl::PermissionDeniedError(absl::StrCat(at, text.substr(verdict + kVerdict.size())));
  }
  // gRPC's words around the cause help nobody.
  const size_t cause = text.rfind(": ");
  return absl::UnavailableError(
      absl::StrCat(at, cause == absl::string_view::npos ? text : text.substr(cause + 2)));
}

}  // namespace trainctl
