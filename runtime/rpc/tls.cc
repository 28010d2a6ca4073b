#include "runtime/rpc/tls.h"

#include <grpc/grpc_security_constants.h>
#include <grpcpp/security/tls_certificate_provider.h>
#include <grpcpp/security/tls_certificate_verifier.h>
#include <grpcpp/security/tls_credentials_options.h>
#include <unistd.h>

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/log.h"
#include "runtime/base/status.h"
#include "runtime/rpc/rpc_status.h"

namespace trainctl {
namespace {

namespace tls = grpc::experimental;

// gRPC has proved by now that the certificate is of our authority and valid.
class NameVerifier : public tls::ExternalCertificateVerifier {
 public:
  explicit NameVerifier(PeerCheck check) : check_(std::move(check)) {}

  bool Verify(tls::TlsCustomVerificationCheckRequest* request, std::function<void(grpc::Status)>,
              grpc::Status* sync_status) override {
    CertificateNames names;
    for (const grpc::string_ref& uri : request->uri_names()) names.uris.push_back(Text(uri));
    for (const grpc::string_ref& dns : request->dns_names()) names.dns.push_back(Text(dns));
    names.common_name = Text(request->common_name());
    *sync_status = ToGrpc(Check(names));
    return true;
  }
  void Cancel(tls::TlsCustomVerificationCheckRequest*) override {}

 private:
  static std::string Text(grpc::string_ref text) { return std::string(text.data(), text.size()); }
  absl::Status Check(const CertificateNames& names) const {
    ASSIGN_OR_RETURN(const PeerName peer, PeerNameOf(names));
    const absl::Status status = check_(peer);
    if (!status.ok()) LogWarning("refused a connection: ", status.message());
    return status;
  }

  const PeerCheck check_;
};

auto ProviderOf(const TlsIdentity& identity) {
  return std::make_shared<tls::StaticDataCertificateProvider>(
      identity.authority,
      std::vector<tls::IdentityKeyCertPair>{{identity.private_key, identity.certificate}});
}

void Fill(PeerCheck check, tls::TlsCredentialsOptions* options) {
  options->watch_root_certs();
  options->watch_identity_key_cert_pairs();
  options->set_certificate_verifier(
      tls::ExternalCertificateVerifier::Create<NameVerifier>(std::move(check)));
}

}  // namespace

absl::Status AdmitNodesAndOwner(const PeerName& peer) {
  if (peer.kind == PeerName::Kind::kNode || peer.uid == 0 || peer.uid == ::geteuid()) {
    return absl::OkStatus();
  }
  return absl::PermissionDeniedError(
      absl::StrCat(peer.ToString(), " is neither a node nor our user (", ::geteuid(), ")"));
}

PeerCheck ExpectNode(std::string name) {
  return [name = std::move(name)](const PeerName& peer) {
    const bool node = peer.kind == PeerName::Kind::kNode;
    if (node && (name.empty() || peer.node == name ||
                 absl::StartsWith(peer.node, absl::StrCat(name, ".")) ||
                 absl::StartsWith(name, absl::StrCat(peer.node, ".")))) {
      return absl::OkStatus();
    }
    return absl::PermissionDeniedError(absl::StrCat("expected node:", name.empty() ? "NAME" : name,
                                                    ", but ", peer.ToString(), " answered"));
  };
}

std::shared_ptr<grpc::ServerCredentials> ServerTls(const TlsIdentity& identity, PeerCheck check) {
  tls::TlsServerCredentialsOptions options(ProviderOf(identity));
  Fill(std::move(check), &options);
  options.set_cert_request_type(GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  return tls::TlsServerCredentials(options);
}

std::shared_ptr<grpc::ChannelCredentials> ChannelTls(const TlsIdentity& identity, PeerCheck check) {
  tls::TlsChannelCredentialsOptions options;
  options.set_certificate_provider(ProviderOf(identity));
  Fill(std::move(check), &options);
  options.set_check_call_host(false);  // names of machines are not what we go by
  return tls::TlsCredentials(options);
}

absl::StatusOr<std::optional<PeerName>> CallerOf(const grpc::ServerContextBase& context) {
  const std::shared_ptr<const grpc::AuthContext> auth = context.auth_context();
  if (auth == nullptr || !auth->IsPeerAuthenticated()) return std::nullopt;
  const auto all = [&auth](const char* property) {
    std::vector<std::string> values;
    for (const grpc::string_ref& value : auth->FindPropertyValues(property)) {
      values.emplace_back(value.data(), value.size());
    }
    return values;
  };
  CertificateNames names;
  names.uris = all(GRPC_PEER_URI_PROPERTY_NAME);
  names.dns = all(GRPC_PEER_DNS_PROPERTY_NAME);
  const std::vector<std::string> common = all(GRPC_X509_CN_PROPERTY_NAME);
  if (!common.empty()) names.common_name = common.front();
  return PeerNameOf(names);
}

}  // namespace trainctl
