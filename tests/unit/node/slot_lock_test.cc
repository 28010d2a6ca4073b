#include "runtime/node/slot_lock.h"

#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/scratch.h"

namespace trainctl {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;

constexpr char kGpu[] = "GPU-5d3c0f3e-0000-1111-2222-333344445555";
constexpr char kOther[] = "GPU-5d3c0f3e-0000-1111-2222-333344446666";

TEST(SlotLock, AGpuIsTakenUntilTheLastHolderClosesIt) {
  const Scratch scratch;
  const std::string folder = scratch.File("locks");
  auto first = LockSlots(folder, {kGpu}, "job1");
  ASSERT_TRUE(first.ok()) << first.status();
  const auto second = LockSlots(folder, {kGpu}, "job2");
  EXPECT_EQ(second.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(second.status().message()), HasSubstr("job job1"));
  Fd inherited(::dup(first->front().get()));
  first->clear();
  EXPECT_FALSE(LockSlots(folder, {kGpu}, "job2").ok());
  inherited.Close();
  EXPECT_TRUE(LockSlots(folder, {kGpu}, "job2").ok());
}

TEST(SlotLock, TakesAllOrNone) {
  const Scratch scratch;
  const std::string folder = scratch.File("locks");
  const auto held = LockSlots(folder, {kOther}, "job1");
  EXPECT_FALSE(LockSlots(folder, {kGpu, kOther}, "job2").ok());
  EXPECT_TRUE(LockSlots(folder, {kGpu}, "job3").ok());
}

TEST(SlotLock, TheFolderIsOpenToEveryUser) {
  const Scratch scratch;
  const std::string folder = scratch.File("locks");
  const auto locks = LockSlots(folder, {kGpu}, "job1");
  struct stat info;
  ASSERT_EQ(::stat(folder.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 07777, 01777u);
  ASSERT_EQ(::stat((folder + "/" + kGpu).c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0666u);
}

TEST(SlotLock, FollowsNoLinkAndTakesNoFolderForAFile) {
  const Scratch scratch;
  const std::string folder = scratch.File("locks");
  ASSERT_TRUE(LockSlots(folder, {kOther}, "job1").ok());
  ASSERT_EQ(::symlink("/etc/passwd", (folder + "/" + kGpu).c_str()), 0);
  EXPECT_FALSE(LockSlots(folder, {kGpu}, "job1").ok());
  ASSERT_EQ(::unlink((folder + "/" + kGpu).c_str()), 0);
  ASSERT_EQ(::mkfifo((folder + "/" + kGpu).c_str(), 0666), 0);
  EXPECT_FALSE(LockSlots(folder, {kGpu}, "job1").ok());
}

TEST(SlotLock, RefusesANameThatIsNoUuid) {
  const Scratch scratch;
  for (const char* name : {"", "..", "../../etc/passwd", "a/b/c/d", "GPU 0 0"}) {
    EXPECT_EQ(LockSlots(scratch.File("locks"), {name}, "job1").status().code(),
              absl::StatusCode::kInvalidArgument)
        << name;
  }
}

TEST(SlotLock, AShimIsAloneUntilTheLastProcessThatHoldsItsLockHasEnded) {
  const Scratch scratch;
  const std::string path = scratch.File("job.lock");
  absl::StatusOr<Fd> first = LockShim(path);
  ASSERT_TRUE(first.ok()) << first.status();
  const Fd inherited(::dup(first->get()));
  first->Close();
  EXPECT_EQ(LockShim(path).status().code(), absl::StatusCode::kUnavailable);
}

TEST(SlotLock, AShimsLockFileMayBeRemovedByItsHolder) {
  const Scratch scratch;
  const std::string path = scratch.File("job.lock");
  absl::StatusOr<Fd> first = LockShim(path);
  ASSERT_TRUE(first.ok());
  ASSERT_EQ(::unlink(path.c_str()), 0);
  EXPECT_TRUE(LockShim(path).ok());
}

TEST(SlotLock, WorkersWithoutAGpuNeedNoLock) {
  const Scratch scratch;
  const auto locks = LockSlots(scratch.File("locks"), {}, "job1");
  ASSERT_TRUE(locks.ok());
  EXPECT_THAT(*locks, SizeIs(0));
}

}  // namespace
}  // namespace trainctl
