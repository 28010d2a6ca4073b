#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "runtime/base/clock.h"
#include "runtime/base/file.h"
#include "runtime/base/log_pieces.h"
#include "runtime/supervisor/forwarder.h"
#include "tests/unit/scratch.h"

namespace trainctl {
namespace {

constexpr uint64_t kAll = std::numeric_limits<uint64_t>::max();

struct Stream {
  explicit Stream(const std::string& log, int64_t epoch = 0, int32_t rank = 0,
                  LogQuota* quota = nullptr, uint8_t id = kStdout) {
    int ends[2];
    EXPECT_EQ(::pipe2(ends, O_NONBLOCK | O_CLOEXEC), 0);
    writer = Fd(ends[1]);
    stream = std::make_unique<OutputStream>(epoch, rank, id, Fd(ends[0]), log, quota);
  }
  void Print(const std::string& text) {
    EXPECT_TRUE(WriteAll(writer.get(), text, "pipe").ok());
    EXPECT_TRUE(stream->Drain(1 << 20));
  }
  void End() {
    writer.Close();
    EXPECT_FALSE(stream->Drain(1 << 20));
    stream->ClosePipe();
  }
  Fd writer;
  std::unique_ptr<OutputStream> stream;
};

std::string TakeAll(OutputStream& stream, size_t limit = 1000) {
  std::string all;
  while (stream.HasNext()) all += stream.Next(limit).bytes;
  return all;
}

class Output : public ::testing::Test {
 protected:
  Scratch scratch_;
  std::string log_ = scratch_.path() + "/stdout.log";
};

TEST_F(Output, GivesNothingUnasked) {
  Stream s(log_);
  s.Print("hello");
  EXPECT_FALSE(s.stream->HasNext());
  EXPECT_EQ(*ReadFile(log_), "hello");
}

TEST_F(Output, GivesTheBytesAskedForAndTheEndOnce) {
  Stream s(log_);
  s.Print(std::string("a\0b\n\xff", 5));
  s.stream->Request(1, kAll);
  EXPECT_EQ(s.stream->Next(2).bytes, std::string("\0b", 2));
  EXPECT_EQ(TakeAll(*s.stream), "\n\xff");
  s.End();
  ASSERT_TRUE(s.stream->HasNext());
  const frame::Output end = s.stream->Next(10);
  EXPECT_EQ(end.offset, 5u);
  EXPECT_EQ(end.bytes, "");
  EXPECT_FALSE(s.stream->HasNext());
}

TEST_F(Output, StopsAtTheLimitUntilAskedAgain) {
  Stream s(log_);
  s.Print("0123456789");
  s.stream->Request(2, 5);
  EXPECT_EQ(TakeAll(*s.stream), "234");
  s.stream->Request(5, kAll);
  EXPECT_EQ(TakeAll(*s.stream, 2), "56789");
}

TEST_F(Output, ARequestThatBeginsWhereTheOpenOneEndsContinuesIt) {
  Stream s(log_);
  s.Print("0123456789");
  s.stream->Request(2, 5);
  EXPECT_EQ(s.stream->Next(1).bytes, "2");
  s.stream->Request(5, 7);
  EXPECT_EQ(TakeAll(*s.stream), "3456");
  s.stream->Request(7, 9);
  EXPECT_EQ(s.stream->Next(1).bytes, "7");
  s.stream->Request(4, 6);
  EXPECT_EQ(TakeAll(*s.stream), "45") << "any other takes its place";
}

TEST_F(Output, ARequestBeyondTheEndOfAClosedLogIsAnsweredWithItsEnd) {
  Stream s(log_);
  s.Print("abc");
  s.End();
  s.stream->Request(100, kAll);
  ASSERT_TRUE(s.stream->HasNext());
  EXPECT_EQ(s.stream->Next(10).offset, 3u);
}

TEST_F(Output, AFullDiskDropsCountsAndSaysSoOnce) {
  Stream s("/dev/full", 0, 0, nullptr, kStderr);
  s.Print("one\n");
  s.Print("two\n");
  EXPECT_EQ(s.stream->dropped(), 8u);
  EXPECT_EQ(s.stream->TakeFirstFailure().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(s.stream->TakeFirstFailure().ok());
  EXPECT_EQ(s.stream->Tail(20), "one\ntwo\n");
}

TEST_F(Output, AFolderThatIsMissingDropsAndSaysSo) {
  Stream s(scratch_.path() + "/none/stdout.log");
  EXPECT_TRUE(s.stream->TakeFirstFailure().ok());  // nothing is lost yet
  s.Print("one\n");
  EXPECT_EQ(s.stream->TakeFirstFailure().code(), absl::StatusCode::kNotFound);
}

TEST_F(Output, TheTailIsTheLastLinesAndBounded) {
  Stream s(log_, 0, 0, nullptr, kStderr);
  EXPECT_EQ(s.stream->Tail(20), "");
  for (int i = 0; i < 30; ++i) s.Print("line " + std::to_string(i) + "\n");
  EXPECT_EQ(s.stream->Tail(2), "line 28\nline 29\n");
  s.Print("unfinished");
  EXPECT_EQ(s.stream->Tail(2), "line 29\nunfinished");
  s.Print(std::string(50000, 'x'));
  EXPECT_EQ(s.stream->Tail(20).size(), OutputStream::kTailBytes);
  s.Print("\nlast");
  EXPECT_EQ(s.stream->Tail(1), "last");
}

TEST_F(Output, ALogThatSomebodyCutEndsInsteadOfHanging) {
  Stream s(log_);
  s.Print("0123456789");
  ASSERT_EQ(::truncate(log_.c_str(), 4), 0);
  s.stream->Request(0, kAll);
  EXPECT_EQ(TakeAll(*s.stream), "0123");
}

TEST_F(Output, AfterALossTheLogGoesOnWithAWholeLineBehindOneThatSaysSo) {
  Stream s(log_);
  s.Print("one\ntw");
  struct rlimit old {};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &old), 0);
  ::signal(SIGXFSZ, SIG_IGN);
  rlimit full = old;
  full.rlim_cur = 6;  // as a disk on which there is no room
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &full), 0);
  s.Print("o\nthr");
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &old), 0);
  s.Print("ee\nfour\n");
  EXPECT_EQ(s.stream->dropped(), 8u);
  EXPECT_EQ(*ReadFile(log_),
            "one\ntw\ntrainctl: 8 bytes of output are lost here: File too large\nfour\n");
}

class Pieces : public Output {
 protected:
  static constexpr uint64_t kPiece = LogQuota::kShortestPiece;
  std::string Lines(size_t bytes) {
    std::string lines;
    while (lines.size() < bytes) lines += "line " + std::to_string(next_line_++) + "\n";
    return lines;
  }
  size_t BytesOnDisk() {
    size_t bytes = 0;
    for (const std::string& name : FolderEntries(scratch_.path())) {
      bytes += ReadFile(scratch_.path() + "/" + name)->size();
    }
    return bytes;
  }
  int next_line_ = 0;
};

TEST_F(Pieces, EndWithWholeLinesAndOffsetsGoOnAcrossThem) {
  LogQuota quota;
  quota.Begin(4000 * kPiece, 1000);
  Stream s(log_, 0, 0, &quota);
  std::string all;
  for (int i = 0; i < 40; ++i) {
    const std::string text = Lines(10'000);
    // In pieces that end anywhere.
    s.Print(text.substr(0, 5'001));
    s.Print(text.substr(5'001));
    all += text;
  }
  const std::vector<LogPiece> pieces = FindLogPieces(log_);
  ASSERT_GE(pieces.size(), 4u);
  for (const LogPiece& piece : pieces) {
    EXPECT_EQ(ReadFile(piece.path)->back(), '\n');
    EXPECT_LE(ReadFile(piece.path)->size(), kPiece + 10'000);
  }
  for (const uint64_t from : {uint64_t{0}, uint64_t{1}, pieces[0].end, pieces[1].end - 1}) {
    s.stream->Request(from, kAll);
    EXPECT_EQ(TakeAll(*s.stream, 7000), all.substr(from));
  }
  s.End();
  OutputStream again(0, 0, kStdout, log_);
  again.Request(5, kAll);
  EXPECT_EQ(TakeAll(again, 7000), all.substr(5));
}

TEST_F(Pieces, ALineThatNeverEndsIsDivided) {
  LogQuota quota;
  quota.Begin(4000 * kPiece, 1000);
  Stream s(log_, 0, 0, &quota);
  for (uint64_t i = 0; i < 3 * kPiece; i += 1000) s.Print(std::string(1000, 'x'));
  EXPECT_EQ(FindLogPieces(log_).size(), 1u);
}

TEST_F(Pieces, TheOldestAreDeletedWhenTheLogsAreLongerThanTheirQuota) {
  LogQuota quota;
  quota.Begin(16 * kPiece, 2);  // pieces of two
  Stream s(log_, 0, 0, &quota);
  Stream quiet(scratch_.path() + "/stderr.log", 0, 0, &quota);
  quiet.Print("first\n");
  for (int i = 0; i < 400; ++i) s.Print(Lines(10'000));
  EXPECT_LE(BytesOnDisk(), 16 * kPiece);
  EXPECT_GE(BytesOnDisk(), 5 * kPiece);
  s.stream->Request(0, kAll);
  const frame::Output first = s.stream->Next(1000);
  EXPECT_EQ(first.skipped, first.offset);
  EXPECT_GT(first.skipped, 2'000'000u);
  EXPECT_EQ(first.bytes.substr(0, 5), "line ");
  quiet.stream->Request(0, kAll);
  EXPECT_EQ(TakeAll(*quiet.stream), "first\n");
}

TEST_F(Pieces, LogsOfAnEarlierEpochGoFirstAndWhole) {
  LogQuota quota;
  quota.Begin(16 * kPiece, 1);
  {
    Stream old(scratch_.path() + "/old.log", 0, 0, &quota);
    for (int i = 0; i < 30; ++i) old.Print(Lines(10'000));
  }
  ASSERT_FALSE(FindLogPieces(scratch_.path() + "/old.log").empty());
  quota.Begin(16 * kPiece, 1);
  Stream s(log_, 1, 0, &quota);
  for (int i = 0; i < 30; ++i) s.Print(Lines(10'000));
  EXPECT_TRUE(FindLogPieces(scratch_.path() + "/old.log").empty());
  EXPECT_NE(::access((scratch_.path() + "/old.log").c_str(), F_OK), 0);
  s.stream->Request(0, kAll);
  EXPECT_EQ(s.stream->Next(100).skipped, 0u);
}

class ForwarderTest : public ::testing::Test {
 protected:
  std::string Log(int64_t epoch, int32_t rank) {
    EXPECT_TRUE(MakeFolders(LogFolder(scratch_.path(), epoch, rank)).ok());
    return LogPath(scratch_.path(), epoch, rank, kStdout);
  }
  std::vector<frame::Output> PumpAll() {
    std::vector<frame::Output> all;
    EXPECT_TRUE(forwarder_.Pump([] { return true; },
                                [&](const frame::Output& output) { all.push_back(output); }));
    return all;
  }
  Scratch scratch_;
  Forwarder forwarder_;
};

TEST_F(ForwarderTest, ARequestMayComeBeforeItsEpoch) {
  forwarder_.Request({3, 0, kStdout, 0, kAll});
  forwarder_.BeginEpoch(3, scratch_.path());
  Stream s(Log(3, 0), 3, 0);
  s.Print("hi");
  forwarder_.Add(std::move(s.stream));
  forwarder_.EndStart();
  const auto all = PumpAll();
  ASSERT_EQ(all.size(), 1u);
  EXPECT_EQ(all[0].bytes, "hi");
}

TEST_F(ForwarderTest, LogsOfEpochsThatAreOverAreReadAgainFromTheirFiles) {
  forwarder_.BeginEpoch(0, scratch_.path());
  Stream s(Log(0, 0), 0, 0);
  s.Print("old");
  s.End();
  forwarder_.Add(std::move(s.stream));
  forwarder_.BeginEpoch(1, scratch_.path());
  forwarder_.Request({0, 0, kStdout, 1, kAll});
  const auto all = PumpAll();
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0].bytes, "ld");
  EXPECT_EQ(all[1].offset, 3u);
}

TEST_F(ForwarderTest, ALogThatNeverWasEndsAtZero) {
  forwarder_.BeginEpoch(1, scratch_.path());
  forwarder_.Request({0, 7, kStdout, 0, kAll});
  const auto all = PumpAll();
  ASSERT_EQ(all.size(), 1u);
  EXPECT_EQ(all[0].offset, 0u);
  EXPECT_EQ(all[0].bytes, "");
}

TEST_F(ForwarderTest, WhatComesAfterTheRequestIsGivenOnceItIsKnownToHaveCome) {
  forwarder_.BeginEpoch(0, scratch_.path());
  Stream s(Log(0, 0), 0, 0);
  OutputStream* stream = forwarder_.Add(std::move(s.stream));
  forwarder_.Request({0, 0, kStdout, 0, kAll});
  EXPECT_EQ(PumpAll().size(), 0u);
  ASSERT_TRUE(WriteAll(s.writer.get(), "later", "pipe").ok());
  EXPECT_TRUE(stream->Drain(1000));
  forwarder_.Moved(*stream);
  EXPECT_EQ(PumpAll().size(), 1u);
  stream->ClosePipe();
  forwarder_.Moved(*stream);
  EXPECT_EQ(PumpAll().size(), 1u);
}

TEST_F(ForwarderTest, LittleThatComesSoonAfterTheLastWaitsForMore) {
  forwarder_.BeginEpoch(0, scratch_.path());
  Stream s(Log(0, 0), 0, 0);
  OutputStream* stream = forwarder_.Add(std::move(s.stream));
  forwarder_.Request({0, 0, kStdout, 0, kAll});
  const auto print = [&](const std::string& text) {
    ASSERT_TRUE(WriteAll(s.writer.get(), text, "pipe").ok());
    EXPECT_TRUE(stream->Drain(1 << 20));
    forwarder_.Moved(*stream);
  };
  print("first");
  EXPECT_EQ(PumpAll().size(), 1u);
  EXPECT_EQ(forwarder_.next_due(), kNever);
  print("second");
  const Instant due = forwarder_.next_due();
  EXPECT_NE(due, kNever);
  EXPECT_LE(due, Now() + OutputStream::kGatherTime);
  print("third");
  EXPECT_EQ(forwarder_.next_due(), due);
  std::string given;
  while (given.empty()) {
    for (const frame::Output& output : PumpAll()) given += output.bytes;
  }
  EXPECT_EQ(given, "secondthird");
  print("fourth");
  print(std::string(40000, 'x'));
  size_t bytes = 0;
  for (const frame::Output& output : PumpAll()) bytes += output.bytes.size();
  EXPECT_GE(bytes, 32768u) << "that is enough";
  stream->ClosePipe();
  forwarder_.Moved(*stream);
  for (const frame::Output& output : PumpAll()) bytes += output.bytes.size();
  EXPECT_EQ(bytes, 40006u);
  EXPECT_FALSE(stream->HasNext()) << "nobody waits for what cannot grow";
}

TEST_F(ForwarderTest, StreamsTakeTurnsAndStopWhenThereIsNoRoom) {
  forwarder_.BeginEpoch(0, scratch_.path());
  std::vector<std::unique_ptr<Stream>> streams;
  for (int rank = 0; rank < 3; ++rank) {
    streams.push_back(std::make_unique<Stream>(Log(0, rank), 0, rank));
    for (int i = 0; i < 4; ++i) streams.back()->Print(std::string(32 * 1024, 'x'));
    forwarder_.Add(std::move(streams.back()->stream));
    forwarder_.Request({0, rank, kStdout, 0, kAll});
  }
  std::vector<int> order;
  const bool all = forwarder_.Pump([&] { return order.size() < 7; },
                                   [&](const frame::Output& o) { order.push_back(o.rank); });
  EXPECT_FALSE(all);
  EXPECT_THAT(order, ::testing::ElementsAre(0, 1, 2, 0, 1, 2, 0));
  EXPECT_EQ(PumpAll().size(), 5u);
  forwarder_.ForgetRequests();
  EXPECT_EQ(PumpAll().size(), 0u);
}

}  // namespace
}  // namespace trainctl
