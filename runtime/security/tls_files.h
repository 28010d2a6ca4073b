// The files by which a process proves who it is. Thread-safe.
#ifndef TRAINCTL_RUNTIME_SECURITY_TLS_FILES_H_
#define TRAINCTL_RUNTIME_SECURITY_TLS_FILES_H_

#include <string>

#include "absl/status/statusor.h"
#include "runtime/base/time.h"
#include "runtime/security/authority.h"
#include "runtime/security/peer_name.h"

namespace trainctl {

// Either a cluster key, or a site's own certificate with its private key and its authority.
// Absolute paths.
struct TlsFiles {
  std::string key;
  std::string certificate;
  std::string private_key;
  std::string authority;
};

// Who we are for peers: a certificate for `name`, issued now from the key and valid for `validity`,
// or the site's, checked. Errors name the file and say what to do.
absl::StatusOr<TlsIdentity> LoadIdentity(const TlsFiles& files, const PeerName& name,
                                         Duration validity);

// For as long as a process may live.
inline constexpr Duration kNodeValidity = seconds(int64_t{10} * 365 * 86400);
inline constexpr Duration kUserValidity = seconds(86400);

}  // namespace trainctl

#endif  // TRAINCTL_RUNTIME_SECURITY_TLS_FILES_H_
