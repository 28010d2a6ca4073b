// Owners of OpenSSL's objects and its errors as a Status. Only runtime/security includes this.
#ifndef TRAINCTL_RUNTIME_SECURITY_OPENSSL_H_
#define TRAINCTL_RUNTIME_SECURITY_OPENSSL_H_

#include <openssl/bio.h>
#include <openssl/bn.h>
#include <openssl/ec.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/kdf.h>
#include <openssl/param_build.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace trainctl {

template <auto free>
struct Free {
  template <typename T>
  void operator()(T* object) const {
    free(object);
  }
};
using OwnedBio = std::unique_ptr<BIO, Free<BIO_free_all>>;
using OwnedNumber = std::unique_ptr<BIGNUM, Free<BN_clear_free>>;
using OwnedNumbers = std::unique_ptr<BN_CTX, Free<BN_CTX_free>>;
using OwnedGroup = std::unique_ptr<EC_GROUP, Free<EC_GROUP_free>>;
using OwnedPoint = std::unique_ptr<EC_POINT, Free<EC_POINT_free>>;
using OwnedSignature = std::unique_ptr<ECDSA_SIG, Free<ECDSA_SIG_free>>;
using OwnedKey = std::unique_ptr<EVP_PKEY, Free<EVP_PKEY_free>>;
using OwnedKeyContext = std::unique_ptr<EVP_PKEY_CTX, Free<EVP_PKEY_CTX_free>>;
using OwnedKdf = std::unique_ptr<EVP_KDF, Free<EVP_KDF_free>>;
using OwnedKdfContext = std::unique_ptr<EVP_KDF_CTX, Free<EVP_KDF_CTX_free>>;
using OwnedBuilder = std::unique_ptr<OSSL_PARAM_BLD, Free<OSSL_PARAM_BLD_free>>;
using OwnedParams = std::unique_ptr<OSSL_PARAM, Free<OSSL_PARAM_free>>;
using OwnedCertificate = std::unique_ptr<X509, Free<X509_free>>;
using OwnedExtension = std::unique_ptr<X509_EXTENSION, Free<X509_EXTENSION_free>>;
using OwnedStore = std::unique_ptr<X509_STORE, Free<X509_STORE_free>>;
using OwnedStoreContext = std::unique_ptr<X509_STORE_CTX, Free<X509_STORE_CTX_free>>;

// INTERNAL, with what OpenSSL last complained about on this thread.
inline absl::Status OpenSslStatus(absl::string_view what) {
  char text[256] = "no reason given";
  if (const unsigned long error = ERR_get_error(); error != 0) {
    ERR_error_string_n(error, text, sizeof(text));
  }
  ERR_clear_error();
  return absl::InternalError(absl::StrCat(what, ": ", text));
}

}  // namespace trainctl

#endif  // TRAINCTL_RUNTIME_SECURITY_OPENSSL_H_
