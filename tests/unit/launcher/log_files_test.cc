#include "launcher/log_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "runtime/base/file.h"
#include "runtime/base/log_pieces.h"

namespace trainctl {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class LogFilesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    char path[] = "/tmp/trainctl-logs-XXXXXX";
    folder_ = mkdtemp(path);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  void Append(int epoch, int rank, const char* stream, const std::string& text) {
    const std::string folder = absl::StrCat(folder_, "/", epoch, "/", rank);
    std::filesystem::create_directories(folder);
    std::ofstream(absl::StrCat(folder, "/", stream, ".log"), std::ios::app) << text;
  }
  std::vector<std::string> Read(LogFiles* logs, bool last = false) {
    std::vector<std::string> lines;
    logs->Read(last, [&](const LogLine& line) {
      lines.push_back(absl::StrCat(line.epoch, "/", line.rank, "/", line.stream, " ", line.line));
      return true;
    });
    return lines;
  }
  std::string folder_;
};

TEST_F(LogFilesTest, AreReadInOrderOfEpochAndRank) {
  Append(10, 0, "stdout", "c\n");
  Append(2, 1, "stdout", "b\n");
  Append(2, 0, "stderr", "a\n");
  LogFiles logs(folder_, std::nullopt);
  EXPECT_THAT(Read(&logs), ElementsAre("2/0/2 a", "2/1/1 b", "10/0/1 c"));
}

TEST_F(LogFilesTest, AreFollowed) {
  LogFiles logs(folder_, std::nullopt);
  EXPECT_THAT(Read(&logs), IsEmpty());
  Append(0, 0, "stdout", "one\ntw");
  EXPECT_THAT(Read(&logs), ElementsAre("0/0/1 one"));
  Append(0, 0, "stdout", "o\nthree");
  EXPECT_THAT(Read(&logs), ElementsAre("0/0/1 two"));
  EXPECT_THAT(Read(&logs, true), ElementsAre("0/0/1 three"));
  EXPECT_THAT(Read(&logs, true), IsEmpty());
}

TEST_F(LogFilesTest, AreLimitedToSomeRanks) {
  Append(0, 0, "stdout", "a\n");
  Append(0, 7, "stdout", "b\n");
  Append(0, 3, "error", "not a log\n");
  LogFiles logs(folder_, std::vector<int>{7});
  EXPECT_THAT(Read(&logs), ElementsAre("0/7/1 b"));
}

TEST_F(LogFilesTest, AreReadFromTheFirstLineSinceATime) {
  constexpr int64_t kSecond = 1'000'000'000;
  Append(0, 0, "stdout", "old\nbegun before\nnew\n");
  Append(0, 1, "stdout", "old\n");
  const std::string times = EncodeLogTime({0, 100 * kSecond}) + EncodeLogTime({6, 200 * kSecond});
  ASSERT_TRUE(ReplaceFile(folder_ + "/0/0/stdout.times", times).ok());
  ASSERT_TRUE(ReplaceFile(folder_ + "/0/1/stdout.times", times.substr(0, 16)).ok());
  LogFiles logs(folder_, std::nullopt, 150 * kSecond);
  EXPECT_THAT(Read(&logs), ElementsAre("0/0/1 new"));
  Append(0, 1, "stdout", "now\n");
  EXPECT_THAT(Read(&logs), ElementsAre("0/1/1 now"));
}

TEST_F(LogFilesTest, AreFollowedAcrossPiecesAndWhatIsGoneIsTold) {
  LogFiles logs(folder_, std::nullopt);
  const std::string log = folder_ + "/0/0/stdout.log";
  Append(0, 0, "stdout", "one\n");
  EXPECT_THAT(Read(&logs), ElementsAre("0/0/1 one"));
  std::filesystem::rename(log, LogPiecePath(log, 4));
  Append(0, 0, "stdout", "two\n");
  EXPECT_THAT(Read(&logs), ElementsAre("0/0/1 two"));
  EXPECT_THAT(logs.TakeLosses(), IsEmpty());
  LogFiles later(folder_, std::nullopt);
  std::filesystem::rename(log, LogPiecePath(log, 8));
  std::filesystem::remove(LogPiecePath(log, 4));
  EXPECT_THAT(Read(&later), ElementsAre("0/0/1 two"));
  EXPECT_THAT(later.TakeLosses(),
              ElementsAre(::testing::StartsWith("rank 0: 4 bytes of its stdout")));
}

}  // namespace
}  // namespace trainctl
