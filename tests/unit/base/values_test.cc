// Time, ids, status macros, errno: the small values.
#include <cerrno>

#include "gmock/gmock.h"
#include "runtime/base/clock.h"
#include "runtime/base/errno_status.h"
#include "runtime/base/ids.h"
#include "runtime/base/status.h"
#include "runtime/base/time.h"

namespace trainctl {
namespace {

TEST(Time, InstantsAndDurationsCombine) {
  const Instant start{1000};
  EXPECT_EQ(start + milliseconds(2), Instant{2'001'000});
  EXPECT_EQ((start + seconds(1)) - start, seconds(1));
  EXPECT_LT(start, kNever);
  EXPECT_DOUBLE_EQ(ToSeconds(milliseconds(1500)), 1.5);
  EXPECT_DOUBLE_EQ(ToMillis(FromSeconds(0.25)), 250);
  const Instant before = Now();
  EXPECT_LE(before, Now());
  EXPECT_GT(WallClockNanos(), 1'500'000'000'000'000'000);
}

TEST(Ids, AreOrderedAndCountUp) {
  EXPECT_LT(Epoch(1), Epoch(1).Next());
  EXPECT_EQ(Term(3).value, 3);
  static_assert(!std::is_convertible_v<Epoch, Term>);
  static_assert(!std::is_convertible_v<int64_t, Epoch>);
}

absl::StatusOr<int> Half(int n) {
  if (n % 2 != 0) return absl::InvalidArgumentError(absl::StrCat(n, " is odd"));
  return n / 2;
}
absl::StatusOr<int> Quarter(int n) {
  ASSIGN_OR_RETURN(const int half, Half(n));
  ASSIGN_OR_RETURN(const int quarter, Half(half));
  return quarter;
}
absl::Status IsQuarterable(int n) {
  RETURN_IF_ERROR(Quarter(n).status());
  return absl::OkStatus();
}

TEST(Status, MacrosPassErrorsOnUnchanged) {
  EXPECT_EQ(*Quarter(8), 2);
  EXPECT_EQ(Quarter(6).status().message(), "3 is odd");
  EXPECT_EQ(IsQuarterable(5).message(), "5 is odd");
  EXPECT_TRUE(IsQuarterable(4).ok());
}

TEST(ErrnoStatus, SaysWhatWasDoneAndWhatWasFound) {
  const absl::Status status = ErrnoStatus(ENOENT, "open /a/b");
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(status.message(), "open /a/b: No such file or directory");
  EXPECT_EQ(ErrnoStatus(ENOSPC, "x").code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(ErrnoStatus(EROFS, "x").code(), absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(ErrnoStatus(EPIPE, "x").code(), absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace trainctl
