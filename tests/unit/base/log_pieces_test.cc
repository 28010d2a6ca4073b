#include "runtime/base/log_pieces.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <string>
#include <utility>

#include "gmock/gmock.h"
#include "runtime/base/file.h"
#include "tests/unit/scratch.h"

namespace trainctl {
namespace {

class LogPieces : public ::testing::Test {
 protected:
  void Append(const std::string& text) {
    Fd file(::open(log_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
    EXPECT_TRUE(WriteAll(file.get(), text, "log").ok());
    written_ += text.size();
  }
  void Rotate() {
    ASSERT_EQ(::rename(log_.c_str(), LogPiecePath(log_, written_).c_str()), 0);
    Append("");
  }
  std::string ReadAll(LogReader& reader) {
    std::string all;
    char buffer[3];
    while (const size_t n = reader.Read(buffer, sizeof(buffer))) all.append(buffer, n);
    return all;
  }
  Scratch scratch_;
  std::string log_ = scratch_.path() + "/stdout.log";
  uint64_t written_ = 0;
};

TEST_F(LogPieces, ALogIsReadAcrossItsPieces) {
  LogReader reader(log_);
  EXPECT_EQ(ReadAll(reader), "");
  Append("one\n");
  Rotate();
  Append("two\n");
  Rotate();
  Append("three\n");
  EXPECT_EQ(ReadAll(reader), "one\ntwo\nthree\n");
  EXPECT_EQ(reader.offset(), 14u);
  EXPECT_EQ(reader.TakeSkipped(), 0u);
}

TEST_F(LogPieces, APieceThatIsRenamedWhileItIsReadIsReadToItsEnd) {
  LogReader reader(log_);
  Append("one\n");
  EXPECT_EQ(ReadAll(reader), "one\n");
  Append("two\n");
  Rotate();
  Append("three\n");
  Rotate();
  EXPECT_EQ(ReadAll(reader), "two\nthree\n");
  Append("four\n");
  EXPECT_EQ(ReadAll(reader), "four\n");
}

TEST_F(LogPieces, OffsetsMeanTheSameInEveryPiece) {
  Append("0123");
  Rotate();
  Append("456");
  Rotate();
  Append("789");
  for (uint64_t offset = 0; offset <= 10; ++offset) {
    LogReader reader(log_, offset);
    EXPECT_EQ(ReadAll(reader), std::string("0123456789").substr(offset));
  }
}

TEST_F(LogPieces, WhatIsDeletedIsSkippedAndCounted) {
  Append("0123");
  Rotate();
  Append("456");
  Rotate();
  Append("789");
  LogReader reader(log_, 1);
  ASSERT_EQ(::unlink(LogPiecePath(log_, 4).c_str()), 0);
  EXPECT_EQ(ReadAll(reader), "456789");
  EXPECT_EQ(reader.TakeSkipped(), 3u);
  EXPECT_EQ(reader.TakeSkipped(), 0u);
}

TEST_F(LogPieces, WhatCameSinceATimeBeginsAtTheRecordThatMayHoldIt) {
  constexpr int64_t kSecond = 1'000'000'000;
  Append("0123456789");
  std::string times;
  for (const auto& [offset, at] : {std::pair{0, 100}, std::pair{4, 200}, std::pair{7, 300}}) {
    times += EncodeLogTime({static_cast<uint64_t>(offset), at * kSecond});
  }
  ASSERT_TRUE(ReplaceFile(LogTimesPath(log_), times + "half").ok());
  EXPECT_EQ(LogOffsetSince(log_, 50 * kSecond), 0u);
  EXPECT_EQ(LogOffsetSince(log_, 100 * kSecond + kSecond / 2), 0u);
  EXPECT_EQ(LogOffsetSince(log_, 102 * kSecond), 4u);
  EXPECT_EQ(LogOffsetSince(log_, 300 * kSecond), 7u);
  EXPECT_EQ(LogOffsetSince(log_, 302 * kSecond), 10u);
}

TEST_F(LogPieces, WithoutRecordsTheFilesOwnTimeCounts) {
  Append("0123");
  Rotate();
  Append("456");
  struct stat found {};
  ASSERT_EQ(::stat(log_.c_str(), &found), 0);
  EXPECT_EQ(LogOffsetSince(log_, (found.st_mtim.tv_sec - 10) * 1'000'000'000), 0u);
  EXPECT_EQ(LogOffsetSince(log_, (found.st_mtim.tv_sec + 10) * 1'000'000'000), 7u);
}

TEST_F(LogPieces, WhatIsNoFileIsNotRead) {
  ASSERT_EQ(::mkfifo(log_.c_str(), 0600), 0);
  LogReader reader(log_);
  EXPECT_EQ(ReadAll(reader), "");
}

}  // namespace
}  // namespace trainctl
