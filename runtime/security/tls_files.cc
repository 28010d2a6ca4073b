#include "runtime/security/tls_files.h"

#include "absl/strings/str_cat.h"
#include "runtime/base/clock.h"
#include "runtime/base/file.h"
#include "runtime/base/status.h"

namespace trainctl {
namespace {

constexpr size_t kMaxPemBytes = 1 << 20;

}  // namespace

absl::StatusOr<TlsIdentity> LoadIdentity(const TlsFiles& files, const PeerName& name,
                                         Duration validity) {
  const int64_t now_s = WallClockNanos() / 1'000'000'000;
  if (files.certificate.empty()) {
    ASSIGN_OR_RETURN(const ClusterKey key, ReadKey(files.key));
    ASSIGN_OR_RETURN(const Authority authority, Authority::Derive(key));
    return authority.Issue(name, now_s, validity);
  }
  TlsIdentity identity;
  ASSIGN_OR_RETURN(identity.certificate, ReadFile(files.certificate, kMaxPemBytes));
  ASSIGN_OR_RETURN(identity.private_key, ReadFile(files.private_key, kMaxPemBytes));
  ASSIGN_OR_RETURN(identity.authority, ReadFile(files.authority, kMaxPemBytes));
  const absl::Status usable = CheckIdentity(identity, now_s).status();
  if (usable.ok()) return identity;
  return absl::Status(usable.code(),
                      absl::StrCat("use ", files.certificate, " with ", files.private_key, " and ",
                                   files.authority, ": ", usable.message()));
}

}  // namespace trainctl
