#include "runtime/security/peer_name.h"

#include <gtest/gtest.h>

#include <string>

namespace trainctl {
namespace {

TEST(PeerName, IsReadBackFromItsText) {
  for (const PeerName& name : {PeerName::Node("n1"), PeerName::Node("gpu-07.example.org"),
                               PeerName::User(0), PeerName::User(4294967295u)}) {
    EXPECT_EQ(ParsePeerName(name.ToString()).value(), name) << name.ToString();
  }
}

TEST(PeerName, RefusesWhatIsNoName) {
  for (const std::string text :
       {"", "node:", "node:-x", "node:.x", "node:a b", "node:a/b", "node:a\n", "user:", "user:-1",
        "user:01", "user: 1", "user:+1", "user:4294967296", "USER:1", "nodes:a", "n1"}) {
    EXPECT_FALSE(ParsePeerName(text).ok()) << text;
  }
  EXPECT_FALSE(ParsePeerName("node:" + std::string(254, 'a')).ok());
  EXPECT_FALSE(ParsePeerName(std::string("node:a\0b", 8)).ok());
}

TEST(PeerName, OfACertificateIsItsOneUri) {
  EXPECT_EQ(PeerNameOf({{"https://x", "user:7"}, {"n1"}, "n2"}).value(), PeerName::User(7));
  EXPECT_TRUE(absl::IsUnauthenticated(PeerNameOf({{"user:7", "node:n1"}, {}, ""}).status()));
}

TEST(PeerName, OfASitesCertificateIsTheNodeOfItsDnsOrCommonName) {
  EXPECT_EQ(PeerNameOf({{}, {"n1.example.org", "n1"}, "x"}).value(),
            PeerName::Node("n1.example.org"));
  EXPECT_EQ(PeerNameOf({{}, {}, "n2"}).value(), PeerName::Node("n2"));
  EXPECT_TRUE(absl::IsUnauthenticated(PeerNameOf({{}, {"*.example.org"}, "n2"}).status()));
  EXPECT_TRUE(absl::IsUnauthenticated(PeerNameOf({{}, {}, ""}).status()));
}

}  // namespace
}  // namespace trainctl
