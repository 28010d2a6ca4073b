#include "runtime/security/authority.h"

#include <openssl/core_names.h>
#include <openssl/pem.h>

#include <array>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"
#include "runtime/security/openssl.h"

namespace trainctl {
namespace {

constexpr long kBackdatedSeconds = 24 * 3600;

#define RETURN_UNLESS(condition, what) \
  do {                                 \
    if (!(condition)) {                \
      return OpenSslStatus(what);      \
    }                                  \
  } while (false)

// A number from 1 to `order` - 1 that depends on the key, on what it is for and on `about`. 48
// bytes for an order of 32 leave no bias that matters.
absl::StatusOr<OwnedNumber> DeriveNumber(const ClusterKey& key, absl::string_view purpose,
                                         absl::string_view about, const BIGNUM* order) {
  constexpr char kWhat[] = "derive the authority of a cluster key";
  OwnedKdf kdf(EVP_KDF_fetch(nullptr, "HKDF", nullptr));
  OwnedKdfContext context(EVP_KDF_CTX_new(kdf.get()));
  RETURN_UNLESS(context != nullptr, kWhat);
  std::string secret(key.begin(), key.end());
  std::string salt = "trainctl cluster authority 1";
  std::string purpose_and_about = absl::StrCat(purpose, ":", about);
  std::string digest = "SHA256";
  OSSL_PARAM params[] = {
      OSSL_PARAM_construct_utf8_string(OSSL_KDF_PARAM_DIGEST, digest.data(), 0),
      OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_KEY, secret.data(), secret.size()),
      OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_SALT, salt.data(), salt.size()),
      OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_INFO, purpose_and_about.data(),
                                        purpose_and_about.size()),
      OSSL_PARAM_construct_end()};
  std::array<unsigned char, 48> bytes;
  const bool derived = EVP_KDF_derive(context.get(), bytes.data(), bytes.size(), params) == 1;
  OPENSSL_cleanse(secret.data(), secret.size());
  RETURN_UNLESS(derived, kWhat);
  OwnedNumber number(BN_secure_new());
  OwnedNumber below(BN_dup(order));
  OwnedNumbers scratch(BN_CTX_secure_new());
  const bool reduced = number && below && scratch && BN_sub_word(below.get(), 1) &&
                       BN_bin2bn(bytes.data(), bytes.size(), number.get()) &&
                       BN_mod(number.get(), number.get(), below.get(), scratch.get()) &&
                       BN_add_word(number.get(), 1);
  OPENSSL_cleanse(bytes.data(), bytes.size());
  RETURN_UNLESS(reduced, kWhat);
  BN_set_flags(number.get(), BN_FLG_CONSTTIME);
  return number;
}

absl::StatusOr<OwnedKey> KeyOf(const EC_GROUP* group, const BIGNUM* secret) {
  constexpr char kWhat[] = "make the key of a cluster's authority";
  OwnedPoint point(EC_POINT_new(group));
  RETURN_UNLESS(point && EC_POINT_mul(group, point.get(), secret, nullptr, nullptr, nullptr),
                kWhat);
  std::array<unsigned char, 65> encoded;
  RETURN_UNLESS(EC_POINT_point2oct(group, point.get(), POINT_CONVERSION_UNCOMPRESSED,
                                   encoded.data(), encoded.size(), nullptr) == encoded.size(),
                kWhat);
  OwnedBuilder builder(OSSL_PARAM_BLD_new());
  RETURN_UNLESS(builder &&
                    OSSL_PARAM_BLD_push_utf8_string(builder.get(), OSSL_PKEY_PARAM_GROUP_NAME,
                                                    "prime256v1", 0) &&
                    OSSL_PARAM_BLD_push_BN(builder.get(), OSSL_PKEY_PARAM_PRIV_KEY, secret) &&
                    OSSL_PARAM_BLD_push_octet_string(builder.get(), OSSL_PKEY_PARAM_PUB_KEY,
                                                     encoded.data(), encoded.size()),
                kWhat);
  OwnedParams params(OSSL_PARAM_BLD_to_param(builder.get()));
  OwnedKeyContext context(EVP_PKEY_CTX_new_from_name(nullptr, "EC", nullptr));
  EVP_PKEY* key = nullptr;
  RETURN_UNLESS(params && context && EVP_PKEY_fromdata_init(context.get()) == 1 &&
                    EVP_PKEY_fromdata(context.get(), &key, EVP_PKEY_KEYPAIR, params.get()) == 1,
                kWhat);
  return OwnedKey(key);
}

// `critical,value` in OpenSSL's notation. The issuer is needed for the identifiers of keys.
bool AddExtension(X509* certificate, X509* issuer, int nid, const std::string& value) {
  X509V3_CTX context;
  X509V3_set_ctx_nodb(&context);
  X509V3_set_ctx(&context, issuer, certificate, nullptr, nullptr, 0);
  OwnedExtension extension(X509V3_EXT_conf_nid(nullptr, &context, nid, value.c_str()));
  return extension && X509_add_ext(certificate, extension.get(), -1) == 1;
}

bool SetCommonName(X509_NAME* name, absl::string_view text) {
  return X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_UTF8,
                                    reinterpret_cast<const unsigned char*>(text.data()),
                                    static_cast<int>(text.size()), -1, 0) == 1;
}

// Replaces the signature by one whose nonce follows from the key and the text signed, since OpenSSL
// draws it at random: the certificate is then the same wherever it is made.
absl::Status SignAlways(X509* certificate, const ClusterKey& key, const EC_GROUP* group,
                        const BIGNUM* secret) {
  constexpr char kWhat[] = "sign the certificate of a cluster's authority";
  unsigned char* text = nullptr;
  const int size = i2d_re_X509_tbs(certificate, &text);
  RETURN_UNLESS(size > 0, kWhat);
  std::array<unsigned char, 32> digest;
  const bool hashed = EVP_Digest(text, static_cast<size_t>(size), digest.data(), nullptr,
                                 EVP_sha256(), nullptr) == 1;
  OPENSSL_free(text);
  RETURN_UNLESS(hashed, kWhat);
  const BIGNUM* order = EC_GROUP_get0_order(group);
  ASSIGN_OR_RETURN(
      OwnedNumber nonce,
      DeriveNumber(key, "nonce", {reinterpret_cast<const char*>(digest.data()), digest.size()},
                   order));
  OwnedNumbers scratch(BN_CTX_secure_new());
  OwnedPoint point(EC_POINT_new(group));
  OwnedNumber r(BN_new());
  OwnedNumber s(BN_secure_new());
  OwnedNumber hash(BN_bin2bn(digest.data(), digest.size(), nullptr));
  OwnedNumber inverse(BN_secure_new());
  // r = (nonce * G).x, s = (hash + r * secret) / nonce, all modulo the order.
  RETURN_UNLESS(
      scratch && point && r && s && hash && inverse &&
          EC_POINT_mul(group, point.get(), nonce.get(), nullptr, nullptr, scratch.get()) &&
          EC_POINT_get_affine_coordinates(group, point.get(), r.get(), nullptr, scratch.get()) &&
          BN_nnmod(r.get(), r.get(), order, scratch.get()) &&
          BN_mod_mul(s.get(), r.get(), secret, order, scratch.get()) &&
          BN_mod_add(s.get(), s.get(), hash.get(), order, scratch.get()) &&
          BN_mod_inverse(inverse.get(), nonce.get(), order, scratch.get()) &&
          BN_mod_mul(s.get(), s.get(), inverse.get(), order, scratch.get()) &&
          !BN_is_zero(r.get()) && !BN_is_zero(s.get()),
      kWhat);
  OwnedSignature signature(ECDSA_SIG_new());
  RETURN_UNLESS(signature && ECDSA_SIG_set0(signature.get(), r.get(), s.get()), kWhat);
  r.release();
  s.release();
  unsigned char* encoded = nullptr;
  const int encoded_size = i2d_ECDSA_SIG(signature.get(), &encoded);
  RETURN_UNLESS(encoded_size > 0, kWhat);
  const ASN1_BIT_STRING* place = nullptr;
  X509_get0_signature(&place, nullptr, certificate);
  // There is no other way to set it; the certificate is ours.
  ASN1_STRING_set0(const_cast<ASN1_BIT_STRING*>(place), encoded, encoded_size);
  return absl::OkStatus();
}

absl::StatusOr<std::string> PemOf(X509* certificate) {
  OwnedBio memory(BIO_new(BIO_s_mem()));
  RETURN_UNLESS(memory && PEM_write_bio_X509(memory.get(), certificate) == 1,
                "write a certificate");
  char* data = nullptr;
  const long size = BIO_get_mem_data(memory.get(), &data);
  return std::string(data, static_cast<size_t>(size));
}

absl::StatusOr<std::string> PemOf(EVP_PKEY* key) {
  OwnedBio memory(BIO_new(BIO_s_secmem()));
  RETURN_UNLESS(memory && PEM_write_bio_PrivateKey(memory.get(), key, nullptr, nullptr, 0, nullptr,
                                                   nullptr) == 1,
                "write a private key");
  char* data = nullptr;
  const long size = BIO_get_mem_data(memory.get(), &data);
  return std::string(data, static_cast<size_t>(size));
}

absl::StatusOr<OwnedCertificate> MakeRoot(EVP_PKEY* key) {
  constexpr char kWhat[] = "make the certificate of a cluster's authority";
  OwnedCertificate root(X509_new());
  RETURN_UNLESS(
      root && X509_set_version(root.get(), X509_VERSION_3) &&
          ASN1_INTEGER_set(X509_get_serialNumber(root.get()), 1) &&
          ASN1_TIME_set_string_X509(X509_getm_notBefore(root.get()), "20000101000000Z") &&
          ASN1_TIME_set_string_X509(X509_getm_notAfter(root.get()), "99991231235959Z") &&
          SetCommonName(X509_get_subject_name(root.get()), "trainctl cluster authority") &&
          X509_set_issuer_name(root.get(), X509_get_subject_name(root.get())) &&
          X509_set_pubkey(root.get(), key),
      kWhat);
  RETURN_UNLESS(
      AddExtension(root.get(), root.get(), NID_basic_constraints, "critical,CA:TRUE,pathlen:0") &&
          AddExtension(root.get(), root.get(), NID_key_usage, "critical,keyCertSign") &&
          AddExtension(root.get(), root.get(), NID_subject_key_identifier, "hash") &&
          X509_sign(root.get(), key, EVP_sha256()) > 0,
      kWhat);
  return root;
}

}  // namespace

struct Authority::Parts {
  OwnedKey key;
  OwnedCertificate root;
};

Authority::Authority(std::unique_ptr<Parts> parts, std::string certificate)
    : parts_(std::move(parts)), certificate_(std::move(certificate)) {}
Authority::Authority(Authority&&) noexcept = default;
Authority::~Authority() = default;

absl::StatusOr<Authority> Authority::Derive(const ClusterKey& key) {
  OwnedGroup group(EC_GROUP_new_by_curve_name(NID_X9_62_prime256v1));
  RETURN_UNLESS(group != nullptr, "find the curve P-256");
  ASSIGN_OR_RETURN(OwnedNumber secret,
                   DeriveNumber(key, "private key", "", EC_GROUP_get0_order(group.get())));
  auto parts = std::make_unique<Parts>();
  ASSIGN_OR_RETURN(parts->key, KeyOf(group.get(), secret.get()));
  ASSIGN_OR_RETURN(parts->root, MakeRoot(parts->key.get()));
  RETURN_IF_ERROR(SignAlways(parts->root.get(), key, group.get(), secret.get()));
  ASSIGN_OR_RETURN(std::string certificate, PemOf(parts->root.get()));
  return Authority(std::move(parts), std::move(certificate));
}

absl::StatusOr<TlsIdentity> Authority::Issue(const PeerName& name, int64_t now_s,
                                             Duration validity) const {
  const std::string what = absl::StrCat("issue a certificate for ", name.ToString());
  OwnedKey key(EVP_EC_gen("prime256v1"));
  OwnedCertificate leaf(X509_new());
  OwnedNumber serial(BN_new());
  X509* root = parts_->root.get();
  const auto until = now_s + std::chrono::duration_cast<seconds>(validity).count();
  RETURN_UNLESS(key && leaf && serial && X509_set_version(leaf.get(), X509_VERSION_3) &&
                    BN_rand(serial.get(), 127, BN_RAND_TOP_ONE, BN_RAND_BOTTOM_ANY) &&
                    BN_to_ASN1_INTEGER(serial.get(), X509_get_serialNumber(leaf.get())) &&
                    ASN1_TIME_set(X509_getm_notBefore(leaf.get()), now_s - kBackdatedSeconds) &&
                    ASN1_TIME_set(X509_getm_notAfter(leaf.get()), until) &&
                    SetCommonName(X509_get_subject_name(leaf.get()), "trainctl") &&
                    X509_set_issuer_name(leaf.get(), X509_get_subject_name(root)) &&
                    X509_set_pubkey(leaf.get(), key.get()),
                what);
  RETURN_UNLESS(AddExtension(leaf.get(), root, NID_basic_constraints, "critical,CA:FALSE") &&
                    AddExtension(leaf.get(), root, NID_key_usage, "critical,digitalSignature") &&
                    AddExtension(leaf.get(), root, NID_ext_key_usage, "serverAuth,clientAuth") &&
                    AddExtension(leaf.get(), root, NID_subject_alt_name,
                                 absl::StrCat("URI:", name.ToString())) &&
                    AddExtension(leaf.get(), root, NID_authority_key_identifier, "keyid:always") &&
                    X509_sign(leaf.get(), parts_->key.get(), EVP_sha256()) > 0,
                what);
  TlsIdentity identity;
  ASSIGN_OR_RETURN(identity.certificate, PemOf(leaf.get()));
  ASSIGN_OR_RETURN(identity.private_key, PemOf(key.get()));
  identity.authority = certificate_;
  return identity;
}

}  // namespace trainctl
