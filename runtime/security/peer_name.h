// Who is at the other end of a connection. A certificate names one of these, and it is this name
// that is checked, never a DNS name. Pure.
#ifndef TRAINCTL_RUNTIME_SECURITY_PEER_NAME_H_
#define TRAINCTL_RUNTIME_SECURITY_PEER_NAME_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace trainctl {

struct PeerName {
  enum class Kind { kNode, kUser };
  Kind kind = Kind::kNode;
  std::string node;  // of kNode
  uint32_t uid = 0;  // of kUser

  static PeerName Node(absl::string_view name) { return {Kind::kNode, std::string(name), 0}; }
  static PeerName User(uint32_t uid) { return {Kind::kUser, "", uid}; }
  std::string ToString() const;  // "node:NAME" or "user:UID"
  friend bool operator==(const PeerName&, const PeerName&) = default;
};

// 1 to 253 of A-Z a-z 0-9 . _ - and no leading dot or hyphen, so that it can stand in certificates,
// paths and lines of text as it is.
bool IsNodeName(absl::string_view name);

// INVALID_ARGUMENT unless `text` is what ToString gives.
absl::StatusOr<PeerName> ParsePeerName(absl::string_view text);

// What a certificate calls its holder.
struct CertificateNames {
  std::vector<std::string> uris;
  std::vector<std::string> dns;
  std::string common_name;
};
// The one URI that is a peer name; without any, as a site's own certificates are, the node of the
// first DNS name or of the common name. UNAUTHENTICATED if none names anybody, or two do.
absl::StatusOr<PeerName> PeerNameOf(const CertificateNames& names);

}  // namespace trainctl

#endif  // TRAINCTL_RUNTIME_SECURITY_PEER_NAME_H_
