// Reading certificates: whom they name and whether they can be believed.
#include <openssl/pem.h>

#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"
#include "runtime/security/authority.h"
#include "runtime/security/openssl.h"

namespace trainctl {
namespace {

using OwnedNames = std::unique_ptr<GENERAL_NAMES, Free<GENERAL_NAMES_free>>;
void FreeStack(STACK_OF(X509) * stack) { sk_X509_pop_free(stack, X509_free); }
using OwnedStack = std::unique_ptr<STACK_OF(X509), Free<FreeStack>>;

absl::StatusOr<std::vector<OwnedCertificate>> ReadCertificates(const std::string& pem,
                                                               absl::string_view what) {
  OwnedBio memory(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())));
  std::vector<OwnedCertificate> certificates;
  while (memory != nullptr) {
    OwnedCertificate next(PEM_read_bio_X509(memory.get(), nullptr, nullptr, nullptr));
    if (next == nullptr) break;
    certificates.push_back(std::move(next));
  }
  ERR_clear_error();
  if (certificates.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(what, " holds no certificate in PEM"));
  }
  return certificates;
}

std::string TextOf(const ASN1_STRING* text) {
  return std::string(reinterpret_cast<const char*>(ASN1_STRING_get0_data(text)),
                     static_cast<size_t>(ASN1_STRING_length(text)));
}

CertificateNames NamesIn(X509* certificate) {
  CertificateNames names;
  OwnedNames others(static_cast<GENERAL_NAMES*>(
      X509_get_ext_d2i(certificate, NID_subject_alt_name, nullptr, nullptr)));
  for (int i = 0; others != nullptr && i < sk_GENERAL_NAME_num(others.get()); ++i) {
    const GENERAL_NAME* other = sk_GENERAL_NAME_value(others.get(), i);
    if (other->type == GEN_URI) {
      names.uris.push_back(TextOf(other->d.uniformResourceIdentifier));
    } else if (other->type == GEN_DNS) {
      names.dns.push_back(TextOf(other->d.dNSName));
    }
  }
  const X509_NAME* subject = X509_get_subject_name(certificate);
  if (const int at = X509_NAME_get_index_by_NID(subject, NID_commonName, -1); at >= 0) {
    names.common_name = TextOf(X509_NAME_ENTRY_get_data(X509_NAME_get_entry(subject, at)));
  }
  return names;
}

absl::Status CheckChain(const std::vector<OwnedCertificate>& chain,
                        const std::vector<OwnedCertificate>& authorities, int64_t now_s) {
  OwnedStore store(X509_STORE_new());
  OwnedStoreContext context(X509_STORE_CTX_new());
  OwnedStack between(sk_X509_new_null());
  bool ready = store && context && between;
  for (const OwnedCertificate& authority : authorities) {
    ready = ready && X509_STORE_add_cert(store.get(), authority.get()) == 1;
  }
  for (size_t i = 1; ready && i < chain.size(); ++i) {
    ready = X509_add_cert(between.get(), chain[i].get(), X509_ADD_FLAG_UP_REF) == 1;
  }
  if (!ready ||
      X509_STORE_CTX_init(context.get(), store.get(), chain[0].get(), between.get()) != 1) {
    return OpenSslStatus("prepare to check a certificate");
  }
  X509_VERIFY_PARAM_set_time(X509_STORE_CTX_get0_param(context.get()), now_s);
  if (X509_verify_cert(context.get()) == 1) return absl::OkStatus();
  const char* why = X509_verify_cert_error_string(X509_STORE_CTX_get_error(context.get()));
  ERR_clear_error();
  return absl::UnauthenticatedError(
      absl::StrCat("the certificate cannot be believed: ", why,
                   "; check the authority it was issued by and this machine's clock"));
}

}  // namespace

absl::StatusOr<PeerName> CheckIdentity(const TlsIdentity& identity, int64_t now_s) {
  ASSIGN_OR_RETURN(const auto chain, ReadCertificates(identity.certificate, "the certificate"));
  ASSIGN_OR_RETURN(const auto authorities, ReadCertificates(identity.authority, "the authority"));
  OwnedBio memory(
      BIO_new_mem_buf(identity.private_key.data(), static_cast<int>(identity.private_key.size())));
  // With an empty pass phrase instead of a question on the terminal.
  char no_phrase[] = "";
  OwnedKey key(PEM_read_bio_PrivateKey(memory.get(), nullptr, nullptr, no_phrase));
  if (key == nullptr) {
    ERR_clear_error();
    return absl::InvalidArgumentError("the private key is no key in PEM without a pass phrase");
  }
  if (X509_check_private_key(chain[0].get(), key.get()) != 1) {
    ERR_clear_error();
    return absl::UnauthenticatedError("the certificate does not belong to the private key");
  }
  RETURN_IF_ERROR(CheckChain(chain, authorities, now_s));
  return PeerNameOf(NamesIn(chain[0].get()));
}

}  // namespace trainctl
