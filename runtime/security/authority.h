// The certificate authority that a cluster key stands for. Every holder of the key derives the same
// one, byte for byte, so that certificates need not be handed from node to node. Thread-safe.
#ifndef TRAINCTL_RUNTIME_SECURITY_AUTHORITY_H_
#define TRAINCTL_RUNTIME_SECURITY_AUTHORITY_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "runtime/base/time.h"
#include "runtime/security/cluster_key.h"
#include "runtime/security/peer_name.h"

namespace trainctl {

// What one end of a TLS connection shows and whom it believes, in PEM.
struct TlsIdentity {
  std::string certificate;  // with what stands between it and the authority
  std::string private_key;
  std::string authority;
};

class Authority {
 public:
  // ECDSA P-256, its key drawn from `key` by HKDF-SHA256; valid from 2000 to 9999.
  static absl::StatusOr<Authority> Derive(const ClusterKey& key);
  Authority(Authority&&) noexcept;
  ~Authority();

  const std::string& certificate() const { return certificate_; }
  // A fresh key and a certificate that names `name`, valid from a day before `now_s` (clocks
  // differ) until `validity` after it. `now_s`: seconds since 1970.
  absl::StatusOr<TlsIdentity> Issue(const PeerName& name, int64_t now_s, Duration validity) const;

 private:
  struct Parts;
  explicit Authority(std::unique_ptr<Parts> parts, std::string certificate);
  std::unique_ptr<Parts> parts_;
  std::string certificate_;
};

// Whom `identity` names. UNAUTHENTICATED says what is wrong: the certificate is not of its
// authority, not valid at `now_s`, names nobody, or does not belong to the private key.
// INVALID_ARGUMENT: one of the three is no PEM.
absl::StatusOr<PeerName> CheckIdentity(const TlsIdentity& identity, int64_t now_s);

}  // namespace trainctl

#endif  // TRAINCTL_RUNTIME_SECURITY_AUTHORITY_H_
