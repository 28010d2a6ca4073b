// Addresses of machines and the calls about them that everybody needs. Thread-safe.
#ifndef TRAINCTL_RUNTIME_BASE_NETWORK_H_
#define TRAINCTL_RUNTIME_BASE_NETWORK_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "runtime/base/fd.h"

namespace trainctl {

// Where something listens: a name or a literal address, and a port.
struct Endpoint {
  std::string name;  // without brackets
  int port = 0;      // 0: any, when listening

  bool empty() const { return name.empty(); }
  std::string ToString() const;  // "n1:29500", "[fe80::1]:29500"
  friend bool operator==(const Endpoint&, const Endpoint&) = default;
};
// "NAME:PORT", "ADDRESS:PORT", "[V6ADDRESS]:PORT", or the same without a port, which is then
// `default_port`. INVALID_ARGUMENT says what was expected.
absl::StatusOr<Endpoint> ParseEndpoint(absl::string_view text, int default_port);

bool IsLiteralAddress(const std::string& name);   // of IPv4 or IPv6
bool IsLoopbackAddress(const std::string& name);  // 127.0.0.0/8, ::1
bool IsWildcardAddress(const std::string& name);  // 0.0.0.0, ::

struct InterfaceAddress {
  std::string interface;  // "eth0"
  std::string address;
};
// Of the interfaces that are up, those that could be told to another machine: neither loopback nor
// valid on one link only. IPv4 before IPv6, in the kernel's order.
std::vector<InterfaceAddress> OwnAddresses();
// Whether `literal` is an address of this machine, loopback included.
bool IsOwnAddress(const std::string& literal);
// The address from which this machine would speak to `literal`; empty if there is no route.
std::string AddressTowards(const std::string& literal);

// Literal addresses of a name, a literal is its own. Blocks for as long as the resolver does.
// UNAVAILABLE: it has none, now.
absl::StatusOr<std::vector<std::string>> Resolve(const std::string& name);

// A listening, non-blocking TCP socket. At the address, if `endpoint` names one of ours literally;
// at every address of the machine otherwise, because what a name means here (127.0.1.1, a service's
// address) need not be what it means elsewhere. ALREADY_EXISTS: somebody listens there.
absl::StatusOr<Fd> ListenTcp(const Endpoint& endpoint);
// A non-blocking TCP socket that is being connected to a literal address; writable when it is, or
// when it cannot be (SO_ERROR).
absl::StatusOr<Fd> BeginConnect(const Endpoint& endpoint);
// The port on which a socket listens.
absl::StatusOr<int> PortOf(int listening);

}  // namespace trainctl

#endif  // TRAINCTL_RUNTIME_BASE_NETWORK_H_
