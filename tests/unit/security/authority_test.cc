#include "runtime/security/authority.h"

#include <gtest/gtest.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>

#include <array>
#include <string>

#include "absl/strings/escaping.h"

namespace trainctl {
namespace {

constexpr int64_t kNow = 1'750'000'000;  // in June 2025
constexpr int64_t kDay = 86400;

ClusterKey KeyOf(uint8_t first) {
  ClusterKey key;
  for (size_t i = 0; i < key.size(); ++i) key[i] = static_cast<uint8_t>(first + i);
  return key;
}

Authority AuthorityOf(uint8_t first) { return Authority::Derive(KeyOf(first)).value(); }

TlsIdentity Issued(const Authority& authority, const PeerName& name) {
  return authority.Issue(name, kNow, seconds(kDay)).value();
}

std::string Sha256(const std::string& text) {
  std::array<unsigned char, 32> digest;
  EVP_Digest(text.data(), text.size(), digest.data(), nullptr, EVP_sha256(), nullptr);
  return absl::BytesToHexString({reinterpret_cast<const char*>(digest.data()), digest.size()});
}

TEST(Authority, IsTheSameForEveryHolderOfTheKeyInEveryProcess) {
  EXPECT_EQ(AuthorityOf(1).certificate(), AuthorityOf(1).certificate());
  EXPECT_NE(AuthorityOf(1).certificate(), AuthorityOf(2).certificate());
  // Nodes of a cluster may run different versions: this value never changes.
  EXPECT_EQ(Sha256(AuthorityOf(1).certificate()),
            "dba4d822f7672efef57d330623d6973624b791309f5fdb6d7d93b517d5fee4d4");
}

TEST(Authority, WhatOneHolderIssuesAnotherBelieves) {
  const Authority here = AuthorityOf(1);
  const Authority there = AuthorityOf(1);
  for (const PeerName& name : {PeerName::Node("n1"), PeerName::Node(std::string(253, 'n')),
                               PeerName::User(0), PeerName::User(1000)}) {
    TlsIdentity identity = Issued(here, name);
    identity.authority = there.certificate();
    const absl::StatusOr<PeerName> found = CheckIdentity(identity, kNow);
    ASSERT_TRUE(found.ok()) << found.status();
    EXPECT_EQ(*found, name);
  }
}

TEST(Authority, EveryCertificateHasAKeyOfItsOwn) {
  const Authority authority = AuthorityOf(1);
  EXPECT_NE(Issued(authority, PeerName::Node("n1")).private_key,
            Issued(authority, PeerName::Node("n1")).private_key);
}

TEST(Authority, CertificatesAreValidFromADayBeforeUntilTheirEnd) {
  const TlsIdentity identity = Issued(AuthorityOf(1), PeerName::User(7));
  for (const int64_t at : {kNow - kDay + 1, kNow, kNow + kDay - 1}) {
    EXPECT_TRUE(CheckIdentity(identity, at).ok()) << at - kNow;
  }
  for (const int64_t at : {kNow - kDay - 1, kNow + kDay + 1}) {
    const absl::Status status = CheckIdentity(identity, at).status();
    EXPECT_TRUE(absl::IsUnauthenticated(status)) << at - kNow << " " << status;
  }
}

TEST(Authority, IsItselfValidInEveryYearThatMatters) {
  for (const int64_t at :
       {int64_t{946'771'200}, int64_t{253'402'214'400}}) {  // 2000-01-02, 9999-12-31
    const TlsIdentity identity =
        AuthorityOf(1).Issue(PeerName::Node("n1"), at, seconds(60)).value();
    EXPECT_TRUE(CheckIdentity(identity, at).ok()) << at;
  }
}

TEST(Authority, ItsOwnSignatureHoldsThoughNoNonceWasDrawn) {
  for (uint8_t first = 0; first < 8; ++first) {
    const std::string pem = AuthorityOf(first).certificate();
    BIO* memory = BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size()));
    X509* root = PEM_read_bio_X509(memory, nullptr, nullptr, nullptr);
    ASSERT_NE(root, nullptr);
    EXPECT_EQ(X509_verify(root, X509_get0_pubkey(root)), 1);
    X509_free(root);
    BIO_free(memory);
  }
}

TEST(Authority, AForeignOneIsNotBelieved) {
  TlsIdentity identity = Issued(AuthorityOf(1), PeerName::Node("n1"));
  identity.authority = AuthorityOf(2).certificate();
  EXPECT_TRUE(absl::IsUnauthenticated(CheckIdentity(identity, kNow).status()));
}

TEST(Authority, ACertificateWithAnothersKeyIsRefused) {
  const Authority authority = AuthorityOf(1);
  TlsIdentity identity = Issued(authority, PeerName::Node("n1"));
  identity.private_key = Issued(authority, PeerName::Node("n1")).private_key;
  EXPECT_TRUE(absl::IsUnauthenticated(CheckIdentity(identity, kNow).status()));
}

TEST(Authority, ALeafCannotIssue) {
  const Authority authority = AuthorityOf(1);
  const TlsIdentity leaf = Issued(authority, PeerName::Node("n1"));
  TlsIdentity identity = Issued(authority, PeerName::Node("n2"));
  identity.authority = leaf.certificate;
  EXPECT_TRUE(absl::IsUnauthenticated(CheckIdentity(identity, kNow).status()));
}

TEST(Authority, TextThatIsNoPemIsRefused) {
  const TlsIdentity good = Issued(AuthorityOf(1), PeerName::Node("n1"));
  for (std::string TlsIdentity::*part :
       {&TlsIdentity::certificate, &TlsIdentity::private_key, &TlsIdentity::authority}) {
    for (const std::string text : {"", "no PEM", "-----BEGIN CERTIFICATE-----\nAAAA\n"}) {
      TlsIdentity bad = good;
      bad.*part = text;
      EXPECT_TRUE(absl::IsInvalidArgument(CheckIdentity(bad, kNow).status())) << text;
    }
  }
}

}  // namespace
}  // namespace trainctl
