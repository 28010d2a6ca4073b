#include "runtime/base/fd.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <utility>

#include "gmock/gmock.h"
#include "tests/unit/scratch.h"

namespace trainctl {
namespace {

bool IsOpen(int fd) { return ::fcntl(fd, F_GETFD) >= 0; }

TEST(Fd, ClosesWhatItOwnsExactlyOnce) {
  int raw = -1;
  {
    Fd fd(::open("/dev/null", O_RDONLY));
    raw = fd.get();
    Fd moved(std::move(fd));
    EXPECT_EQ(moved.get(), raw);
    EXPECT_TRUE(IsOpen(raw));
    Fd other(::open("/dev/null", O_RDONLY));
    const int replaced = other.get();
    other = std::move(moved);
    EXPECT_FALSE(IsOpen(replaced));
    EXPECT_EQ(other.get(), raw);
  }
  EXPECT_FALSE(IsOpen(raw));
}

TEST(Fd, ReleaseGivesOwnershipAway) {
  Fd fd(::open("/dev/null", O_RDONLY));
  Fd again(fd.Release());
  EXPECT_FALSE(fd.valid());
  EXPECT_TRUE(again.valid());
}

TEST(WriteAll, NamesTheTargetInItsError) {
  Fd fd(::open("/dev/full", O_WRONLY | O_CLOEXEC));
  const absl::Status status = WriteAll(fd.get(), "x", "the full one");
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr("write to the full one: "));
}

TEST(UnixSocket, ListensWithTheModeAskedForAndReplacesAStaleFile) {
  Scratch scratch;
  const std::string path = scratch.File("socket");
  EXPECT_EQ(ConnectUnix(path).status().code(), absl::StatusCode::kUnavailable);
  {
    auto first = ListenUnix(path, 0600);
    ASSERT_TRUE(first.ok()) << first.status();
    struct stat info;
    ASSERT_EQ(::stat(path.c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 0777, 0600u);
    EXPECT_EQ(ListenUnix(path, 0600).status().code(), absl::StatusCode::kAlreadyExists);
    EXPECT_TRUE(ConnectUnix(path).ok());
  }
  EXPECT_EQ(ConnectUnix(path).status().code(), absl::StatusCode::kUnavailable);  // stale
  EXPECT_TRUE(ListenUnix(path, 0600).ok());
}

TEST(UnixSocket, APathThatIsTooLongIsAnError) {
  const std::string path = "/tmp/" + std::string(200, 'x');
  EXPECT_EQ(ListenUnix(path, 0600).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ConnectUnix(path).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace trainctl
