#include "runtime/supervisor/lease.h"

#include "gtest/gtest.h"

namespace trainctl {
namespace {

constexpr Duration kTen = seconds(10);

TEST(Lease, CountsFromTheMomentTheRequestWasSent) {
  Lease lease;
  lease.Begin(Instant{0}, kTen);
  EXPECT_EQ(lease.until(), Instant{0} + kTen);
  const uint64_t id = lease.Request(Instant{0} + seconds(3));
  EXPECT_TRUE(lease.Grant(id, kTen));  // whenever the answer comes
  EXPECT_EQ(lease.until(), Instant{0} + seconds(13));
}

TEST(Lease, AnOldAnswerCannotShortenIt) {
  Lease lease;
  lease.Begin(Instant{0}, kTen);
  const uint64_t first = lease.Request(Instant{0} + seconds(3));
  const uint64_t second = lease.Request(Instant{0} + seconds(6));
  EXPECT_TRUE(lease.Grant(second, kTen));
  EXPECT_FALSE(lease.Grant(first, kTen));
  EXPECT_EQ(lease.until(), Instant{0} + seconds(16));
}

TEST(Lease, UnknownRepeatedAndEmptyAnswersChangeNothing) {
  Lease lease;
  lease.Begin(Instant{0}, kTen);
  const uint64_t id = lease.Request(Instant{0} + seconds(3));
  EXPECT_FALSE(lease.Grant(id + 1, kTen));
  EXPECT_FALSE(lease.Grant(id, Duration(0)));
  EXPECT_FALSE(lease.Grant(id, -kTen));
  EXPECT_TRUE(lease.Grant(id, kTen));
  EXPECT_FALSE(lease.Grant(id, kTen * 2));
  EXPECT_EQ(lease.until(), Instant{0} + seconds(13));
}

TEST(Lease, AHugeLengthDoesNotOverflow) {
  Lease lease;
  lease.Begin(Instant{0}, kTen);
  EXPECT_TRUE(lease.Grant(lease.Request(Instant{1}), Duration::max()));
  EXPECT_LE(lease.until(), Instant{1} + std::chrono::hours(24));
}

TEST(Lease, ARequestOfAnEarlierEpochIsWorthNothing) {
  Lease lease;
  lease.Begin(Instant{0}, kTen);
  const uint64_t id = lease.Request(Instant{0} + seconds(3));
  lease.End();
  EXPECT_EQ(lease.until(), kNever);
  EXPECT_FALSE(lease.Grant(id, kTen));
  lease.Begin(Instant{0} + seconds(5), kTen);
  EXPECT_FALSE(lease.Grant(id, seconds(100)));
}

TEST(Lease, ForgetsTheOldestOfManyUnansweredRequests) {
  Lease lease;
  lease.Begin(Instant{0}, kTen);
  const uint64_t first = lease.Request(Instant{0} + seconds(1));
  uint64_t last = first;
  for (int i = 2; i < 1000; ++i) last = lease.Request(Instant{0} + seconds(i));
  EXPECT_FALSE(lease.Grant(first, seconds(5000)));
  EXPECT_TRUE(lease.Grant(last, kTen));
}

}  // namespace
}  // namespace trainctl
