#include "runtime/worker/network_interface.h"

#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "runtime/base/errno_status.h"
#include "runtime/base/fd.h"
#include "runtime/base/status.h"

namespace trainctl {
namespace {

bool SameAddress(const sockaddr* a, const sockaddr* b) {
  if (a == nullptr || a->sa_family != b->sa_family) return false;
  if (a->sa_family == AF_INET) {
    return reinterpret_cast<const sockaddr_in*>(a)->sin_addr.s_addr ==
           reinterpret_cast<const sockaddr_in*>(b)->sin_addr.s_addr;
  }
  if (a->sa_family == AF_INET6) {
    return std::memcmp(&reinterpret_cast<const sockaddr_in6*>(a)->sin6_addr,
                       &reinterpret_cast<const sockaddr_in6*>(b)->sin6_addr, sizeof(in6_addr)) == 0;
  }
  return false;
}

// A datagram socket that is connected gets its source address from the routing table; nothing is
// sent.
absl::Status SourceTowards(const addrinfo& target, sockaddr_storage* source) {
  Fd fd(::socket(target.ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  socklen_t size = sizeof(*source);
  if (!fd.valid() || ::connect(fd.get(), target.ai_addr, target.ai_addrlen) < 0 ||
      ::getsockname(fd.get(), reinterpret_cast<sockaddr*>(source), &size) < 0) {
    return ErrnoStatus(errno, "find a route");
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> NameOf(const sockaddr_storage& source) {
  ifaddrs* all = nullptr;
  if (::getifaddrs(&all) < 0) return ErrnoStatus(errno, "list network interfaces");
  std::string name;
  for (const ifaddrs* one = all; one != nullptr && name.empty(); one = one->ifa_next) {
    if (SameAddress(one->ifa_addr, reinterpret_cast<const sockaddr*>(&source))) {
      name = one->ifa_name;
    }
  }
  ::freeifaddrs(all);
  if (name.empty()) return absl::NotFoundError("no interface has the route's source address");
  return name;
}

}  // namespace

absl::StatusOr<std::string> InterfaceTowards(const std::string& address) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* found = nullptr;
  const int error = ::getaddrinfo(address.c_str(), "9", &hints, &found);
  if (error != 0) {
    return absl::UnavailableError(
        absl::StrCat("choose a network interface: look up ", address, ": ", ::gai_strerror(error)));
  }
  absl::Status last = absl::NotFoundError("no address");
  for (const addrinfo* one = found; one != nullptr; one = one->ai_next) {
    sockaddr_storage source = {};
    last = SourceTowards(*one, &source);
    if (!last.ok()) continue;
    absl::StatusOr<std::string> name = NameOf(source);
    if (name.ok()) {
      ::freeaddrinfo(found);
      return name;
    }
    last = name.status();
  }
  ::freeaddrinfo(found);
  return absl::UnavailableError(absl::StrCat("choose a network interface towards ", address, ": ",
                                             last.message(), "; name one in GLOO_SOCKET_IFNAME"));
}

absl::StatusOr<std::string> ChooseInterface(bool one_node) {
  const char* named = std::getenv("GLOO_SOCKET_IFNAME");
  if (named != nullptr && *named != '\0') return std::string(named, std::strcspn(named, ","));
  if (one_node) return std::string("lo");
  const char* master = std::getenv("MASTER_ADDR");
  if (master == nullptr || *master == '\0') {
    return absl::InvalidArgumentError(
        "choose a network interface: the job has several nodes, and neither GLOO_SOCKET_IFNAME nor "
        "MASTER_ADDR is set");
  }
  return InterfaceTowards(master);
}

}  // namespace trainctl
