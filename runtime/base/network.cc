#include "runtime/base/network.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <optional>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "runtime/base/errno_status.h"
#include "runtime/base/status.h"

namespace trainctl {
namespace {

constexpr int kBacklog = 1024;
constexpr size_t kMaxNameBytes = 253;

struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t size = 0;
  sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage); }
};

std::optional<SocketAddress> Literal(const std::string& text, int port) {
  SocketAddress address;
  auto* v4 = reinterpret_cast<sockaddr_in*>(&address.storage);
  auto* v6 = reinterpret_cast<sockaddr_in6*>(&address.storage);
  if (::inet_pton(AF_INET, text.c_str(), &v4->sin_addr) == 1) {
    v4->sin_family = AF_INET;
    v4->sin_port = htons(static_cast<uint16_t>(port));
    address.size = sizeof(*v4);
    return address;
  }
  if (::inet_pton(AF_INET6, text.c_str(), &v6->sin6_addr) == 1) {
    v6->sin6_family = AF_INET6;
    v6->sin6_port = htons(static_cast<uint16_t>(port));
    address.size = sizeof(*v6);
    return address;
  }
  return std::nullopt;
}

std::string TextOf(const sockaddr* address) {
  char text[INET6_ADDRSTRLEN] = {};
  if (address->sa_family == AF_INET) {
    ::inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in*>(address)->sin_addr, text,
                sizeof(text));
  } else if (address->sa_family == AF_INET6) {
    ::inet_ntop(AF_INET6, &reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr, text,
                sizeof(text));
  }
  return text;
}

bool OnOneLinkOnly(const sockaddr* address) {
  if (address->sa_family == AF_INET) {
    const uint32_t bits = ntohl(reinterpret_cast<const sockaddr_in*>(address)->sin_addr.s_addr);
    return bits >> 16 == 0xa9fe;  // 169.254.0.0/16
  }
  return IN6_IS_ADDR_LINKLOCAL(&reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr);
}

template <typename Take>
void ForEachInterface(const Take& take) {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) < 0) return;
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owned(list, ::freeifaddrs);
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    const bool internet = entry->ifa_addr != nullptr && (entry->ifa_addr->sa_family == AF_INET ||
                                                         entry->ifa_addr->sa_family == AF_INET6);
    if (internet && (entry->ifa_flags & IFF_UP) != 0) take(*entry);
  }
}

absl::Status BadEndpoint(absl::string_view text) {
  return absl::InvalidArgumentError(absl::StrCat("found \"", text.substr(0, 300),
                                                 "\", expected NAME:PORT, ADDRESS:PORT or "
                                                 "[V6ADDRESS]:PORT with a port up to 65535"));
}

// Both kinds of addresses where the kernel has both.
absl::StatusOr<Fd> BindEverywhere(int port) {
  Fd fd(::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const int on = 1;
  const int off = 0;
  if (fd.valid() && ::setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off)) == 0) {
    ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    SocketAddress any = *Literal("::", port);
    if (::bind(fd.get(), any.get(), any.size) == 0) return fd;
    if (errno != EADDRNOTAVAIL) return ErrnoStatus(errno, "bind");
  }
  fd = Fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid()) return ErrnoStatus(errno, "create a TCP socket");
  ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  SocketAddress any = *Literal("0.0.0.0", port);
  if (::bind(fd.get(), any.get(), any.size) < 0) return ErrnoStatus(errno, "bind");
  return fd;
}

absl::StatusOr<Fd> BindAt(SocketAddress address) {
  Fd fd(::socket(address.get()->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid()) return ErrnoStatus(errno, "create a TCP socket");
  const int on = 1;
  ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  if (::bind(fd.get(), address.get(), address.size) < 0) return ErrnoStatus(errno, "bind");
  return fd;
}

}  // namespace

std::string Endpoint::ToString() const {
  return name.find(':') == std::string::npos ? absl::StrCat(name, ":", port)
                                             : absl::StrCat("[", name, "]:", port);
}

absl::StatusOr<Endpoint> ParseEndpoint(absl::string_view text, int default_port) {
  Endpoint endpoint{"", default_port};
  absl::string_view rest = text;
  if (absl::ConsumePrefix(&rest, "[")) {
    const size_t close = rest.find(']');
    if (close == absl::string_view::npos) return BadEndpoint(text);
    endpoint.name = std::string(rest.substr(0, close));
    rest.remove_prefix(close + 1);
    if (!IsLiteralAddress(endpoint.name)) return BadEndpoint(text);
  } else if (std::count(rest.begin(), rest.end(), ':') > 1) {
    endpoint.name = std::string(rest);  // a bare IPv6 address
    rest = "";
    if (!IsLiteralAddress(endpoint.name)) return BadEndpoint(text);
  } else {
    endpoint.name = std::string(rest.substr(0, rest.find(':')));
    rest.remove_prefix(endpoint.name.size());
  }
  const bool good_name = !endpoint.name.empty() && endpoint.name.size() <= kMaxNameBytes &&
                         std::none_of(endpoint.name.begin(), endpoint.name.end(),
                                      [](char c) { return c <= ' ' || c == '/' || c == '\x7f'; });
  if (!good_name) return BadEndpoint(text);
  if (rest.empty()) return endpoint;
  if (!absl::ConsumePrefix(&rest, ":") || !absl::SimpleAtoi(rest, &endpoint.port) ||
      endpoint.port < 0 || endpoint.port > 65535) {
    return BadEndpoint(text);
  }
  return endpoint;
}

bool IsLiteralAddress(const std::string& name) { return Literal(name, 0).has_value(); }

bool IsLoopbackAddress(const std::string& name) {
  std::optional<SocketAddress> address = Literal(name, 0);
  if (!address.has_value()) return false;
  if (address->get()->sa_family == AF_INET) {
    return ntohl(reinterpret_cast<sockaddr_in*>(address->get())->sin_addr.s_addr) >> 24 == 127;
  }
  return IN6_IS_ADDR_LOOPBACK(&reinterpret_cast<sockaddr_in6*>(address->get())->sin6_addr);
}

bool IsWildcardAddress(const std::string& name) { return name == "0.0.0.0" || name == "::"; }

std::vector<InterfaceAddress> OwnAddresses() {
  std::vector<InterfaceAddress> v4;
  std::vector<InterfaceAddress> v6;
  ForEachInterface([&](const ifaddrs& entry) {
    if ((entry.ifa_flags & IFF_LOOPBACK) != 0 || OnOneLinkOnly(entry.ifa_addr)) return;
    (entry.ifa_addr->sa_family == AF_INET ? v4 : v6)
        .push_back({entry.ifa_name, TextOf(entry.ifa_addr)});
  });
  v4.insert(v4.end(), v6.begin(), v6.end());
  return v4;
}

bool IsOwnAddress(const std::string& literal) {
  if (IsLoopbackAddress(literal)) return true;
  bool own = false;
  std::optional<SocketAddress> address = Literal(literal, 0);
  if (!address.has_value()) return false;
  const std::string text = TextOf(address->get());
  ForEachInterface([&](const ifaddrs& entry) { own = own || TextOf(entry.ifa_addr) == text; });
  return own;
}

std::string AddressTowards(const std::string& literal) {
  // Connecting a datagram socket sends nothing; it asks the routing table.
  std::optional<SocketAddress> address = Literal(literal, 9);
  if (!address.has_value()) return "";
  Fd fd(::socket(address->get()->sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!fd.valid() || ::connect(fd.get(), address->get(), address->size) < 0) return "";
  SocketAddress own;
  own.size = sizeof(own.storage);
  if (::getsockname(fd.get(), own.get(), &own.size) < 0) return "";
  return TextOf(own.get());
}

absl::StatusOr<std::vector<std::string>> Resolve(const std::string& name) {
  if (IsLiteralAddress(name)) return std::vector<std::string>{name};
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_ADDRCONFIG;
  addrinfo* list = nullptr;
  const int error = ::getaddrinfo(name.c_str(), nullptr, &hints, &list);
  if (error != 0) {
    return absl::UnavailableError(
        absl::StrCat("find the address of ", name, ": ", ::gai_strerror(error)));
  }
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owned(list, ::freeaddrinfo);
  std::vector<std::string> addresses;
  for (const addrinfo* entry = list; entry != nullptr; entry = entry->ai_next) {
    std::string text = TextOf(entry->ai_addr);
    const bool known = std::find(addresses.begin(), addresses.end(), text) != addresses.end();
    if (!text.empty() && !known) addresses.push_back(std::move(text));
  }
  return addresses;
}

absl::StatusOr<Fd> ListenTcp(const Endpoint& endpoint) {
  std::optional<SocketAddress> literal = Literal(endpoint.name, endpoint.port);
  const bool exactly = literal.has_value() && IsOwnAddress(endpoint.name);
  absl::StatusOr<Fd> fd = exactly ? BindAt(*literal) : BindEverywhere(endpoint.port);
  absl::Status status = fd.status();
  if (status.ok() && ::listen(fd->get(), kBacklog) < 0) status = ErrnoStatus(errno, "listen");
  if (status.ok()) return fd;
  const std::string what = absl::StrCat("listen at ", endpoint.ToString(), ": ");
  if (absl::IsAlreadyExists(status)) {
    return absl::AlreadyExistsError(absl::StrCat(what, "another process listens there"));
  }
  return absl::Status(status.code(), absl::StrCat(what, status.message()));
}

absl::StatusOr<Fd> BeginConnect(const Endpoint& endpoint) {
  std::optional<SocketAddress> address = Literal(endpoint.name, endpoint.port);
  if (!address.has_value()) {
    return absl::InvalidArgumentError(absl::StrCat(endpoint.name, " is no literal address"));
  }
  Fd fd(::socket(address->get()->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid()) return ErrnoStatus(errno, "create a TCP socket");
  if (::connect(fd.get(), address->get(), address->size) < 0 && errno != EINPROGRESS &&
      errno != ECONNREFUSED) {
    return ErrnoStatus(errno, absl::StrCat("connect to ", endpoint.ToString()));
  }
  return fd;
}

absl::StatusOr<int> PortOf(int listening) {
  SocketAddress own;
  own.size = sizeof(own.storage);
  if (::getsockname(listening, own.get(), &own.size) < 0) {
    return ErrnoStatus(errno, "find the port of a socket");
  }
  return ntohs(own.get()->sa_family == AF_INET
                   ? reinterpret_cast<sockaddr_in*>(own.get())->sin_port
                   : reinterpret_cast<sockaddr_in6*>(own.get())->sin6_port);
}

}  // namespace trainctl
