#include "runtime/base/network.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace trainctl {
namespace {

TEST(Endpoint, IsReadInEveryForm) {
  EXPECT_EQ(ParseEndpoint("n1:29500", 1).value(), (Endpoint{"n1", 29500}));
  EXPECT_EQ(ParseEndpoint("n1.site.org", 7).value(), (Endpoint{"n1.site.org", 7}));
  EXPECT_EQ(ParseEndpoint("10.0.0.1:0", 7).value(), (Endpoint{"10.0.0.1", 0}));
  EXPECT_EQ(ParseEndpoint("[fd00::1]:80", 7).value(), (Endpoint{"fd00::1", 80}));
  EXPECT_EQ(ParseEndpoint("[fd00::1]", 7).value(), (Endpoint{"fd00::1", 7}));
  EXPECT_EQ(ParseEndpoint("fd00::1", 7).value(), (Endpoint{"fd00::1", 7}));
  for (const char* text : {"n1:29500", "[fd00::1]:80"}) {
    EXPECT_EQ(ParseEndpoint(text, 0)->ToString(), text);
  }
}

TEST(Endpoint, RefusesWhatIsNone) {
  for (const std::string text :
       {"", ":1", "n1:", "n1:x", "n1:-1", "n1:65536", "n1:99999999999", "[n1]:1", "[fd00::1:2",
        "a:b:c", "n 1:2", "http://n1:2", "[]:1", "n1\n:2"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(ParseEndpoint(text, 0).status())) << text;
  }
  EXPECT_FALSE(ParseEndpoint(std::string(1000, 'n'), 0).ok());
}

TEST(Addresses, LoopbackIsOursAndNeverToldToOthers) {
  EXPECT_TRUE(IsOwnAddress("127.0.0.1"));
  EXPECT_TRUE(IsOwnAddress("127.9.9.9"));
  EXPECT_TRUE(IsOwnAddress("::1"));
  EXPECT_FALSE(IsOwnAddress("192.0.2.1"));
  EXPECT_FALSE(IsOwnAddress("localhost"));
  for (const InterfaceAddress& own : OwnAddresses()) {
    EXPECT_TRUE(IsOwnAddress(own.address)) << own.address;
    EXPECT_FALSE(IsLoopbackAddress(own.address)) << own.address;
    EXPECT_TRUE(IsLiteralAddress(own.address)) << own.address;
  }
}

TEST(Addresses, TheOneTowardsLoopbackIsLoopback) {
  EXPECT_EQ(AddressTowards("127.0.0.1"), "127.0.0.1");
  EXPECT_EQ(AddressTowards("no literal"), "");
}

TEST(Addresses, ALiteralIsItsOwn) {
  EXPECT_THAT(*Resolve("192.0.2.1"), ::testing::ElementsAre("192.0.2.1"));
  EXPECT_TRUE(absl::IsUnavailable(Resolve("no-such-name.invalid").status()));
}

TEST(ListenTcp, TakesTheAddressThatIsNamedAndTellsItsPort) {
  const absl::StatusOr<Fd> fd = ListenTcp({"127.0.0.2", 0});
  ASSERT_TRUE(fd.ok()) << fd.status();
  const int port = PortOf(fd->get()).value();
  EXPECT_GT(port, 0);
  EXPECT_TRUE(absl::IsAlreadyExists(ListenTcp({"127.0.0.2", port}).status()));
  EXPECT_TRUE(ListenTcp({"127.0.0.3", port}).ok());  // another address is free
}

TEST(ListenTcp, TakesEveryAddressForANameThatNeedNotMeanTheSameElsewhere) {
  const absl::StatusOr<Fd> fd = ListenTcp({"some-name.invalid", 0});
  ASSERT_TRUE(fd.ok()) << fd.status();
  const int port = PortOf(fd->get()).value();
  EXPECT_TRUE(absl::IsAlreadyExists(ListenTcp({"127.0.0.2", port}).status()));
}

}  // namespace
}  // namespace trainctl
