#include "runtime/supervisor/port_hold.h"

#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>
#include <utility>

#include "runtime/base/errno_status.h"
#include "runtime/base/status.h"

namespace trainctl {
namespace {

absl::StatusOr<PortHold> TakeFor(int family) {
  Fd fd(::socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!fd.valid()) return ErrnoStatus(errno, "create socket to hold a port");
  const int on = 1;
  const int off = 0;
  sockaddr_storage address{};
  address.ss_family = static_cast<sa_family_t>(family);
  socklen_t size = family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
  if (::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) < 0 ||
      (family == AF_INET6 &&
       ::setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off)) < 0) ||
      ::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), size) < 0 ||
      ::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&address), &size) < 0) {
    return ErrnoStatus(errno, "bind a port to hold it");
  }
  // The port is at the same place in both kinds of address.
  const uint16_t port = ntohs(reinterpret_cast<const sockaddr_in*>(&address)->sin_port);
  return PortHold{std::move(fd), port};
}

}  // namespace

absl::StatusOr<PortHold> PortHold::Take() {
  if (absl::StatusOr<PortHold> both = TakeFor(AF_INET6); both.ok()) return both;
  return TakeFor(AF_INET);
}

}  // namespace trainctl
