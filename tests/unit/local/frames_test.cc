#include "runtime/local/frames.h"

#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "gmock/gmock.h"

namespace trainctl::frame {
namespace {

using ::testing::HasSubstr;

// One of each, with every field set to something that is not its default.
std::vector<Frame> Samples() {
  const Exit exit{Exit::Kind::kSignaled, 11, true, true, "start worker rank 3: no"};
  const Shard shard{3, "shard-00003", 1ull << 40, "xxh3-128:00"};
  const SlotState slot{3, 1, 4711, true, exit, -5, "tail", "{}"};
  const Exchange exchange{2, 1, "gloo/1", std::string("a\0b", 3), 77};
  return {
      Hello{kFrameVersion, -9, 4},
      StartEpoch{5,
                 6,
                 7,
                 "/work",
                 "/logs",
                 1ull << 33,
                 400,
                 1ull << 34,
                 77,
                 {"A=1", ""},
                 {Launch{3, 1, {"sh", "-c", ""}, {"B=2"}}}},
      StopEpoch{5, 6, std::numeric_limits<int64_t>::min(), true},
      LeaseAnswer{std::numeric_limits<uint64_t>::max(), 5, true, 10},
      PageRequest{6, true, true},
      SignalWorkers{6, 10, {3, 4}},
      OutputFrom{6, 3, 2, 1234, 5678},
      Release{},
      ExchangeDone{6, "n", {"v0", "v1"}, "missing 3"},
      CommitGranted{6, 5, 100, {shard}, {10, 20}},
      exchange,
      ShardPrepared{6, 100, shard},
      CheckpointPublished{6, 100},
      CheckpointRejected{6, 90, "digest"},
      Metric{6, 0, "test_top1", 0.89},
      Note{6, 1, "line"},
      ShimState{kFrameVersion, "job", 5, 6, false, "pid 8", 40000, {slot}, {exchange}},
      EpochStarted{6, 40001, {slot, slot}},
      WorkerExited{6, 3, exit, 99, "tail\n", "{}"},
      EpochGone{6},
      Output{6, 3, 2, 1234, 99, std::string(1000, '\xff')},
      Progress{6, 3, 1, 2, 3, 0.5, 1.5, 4, 5, 6},
      LeaseRequest{7},
      Unkillable{6, "pid 8, state D"},
      DiagnoseWorkers{6},
      HangSuspected{6, 3, 9, "has not"},
      WorkersDiagnosed{6, {{3, 5, 1000, 7, 12, true, true, "barrier of 0 bytes"}}},
      Ping{},
      Pong{},
  };
}

absl::StatusOr<std::optional<Frame>> DecodeOne(const std::string& bytes) {
  Decoder decoder;
  decoder.Feed(bytes);
  return decoder.Next();
}

TEST(Frames, EveryTypeComesBackAsItWas) {
  ASSERT_EQ(Samples().size(), std::variant_size_v<Frame>);
  for (const Frame& frame : Samples()) {
    const std::string bytes = Encode(frame);
    const auto decoded = DecodeOne(bytes);
    ASSERT_TRUE(decoded.ok()) << frame.index() << ": " << decoded.status();
    ASSERT_TRUE(decoded->has_value()) << frame.index();
    EXPECT_EQ((*decoded)->index(), frame.index());
    // Encoding is injective on the fields it visits, so equal bytes mean equal fields.
    EXPECT_EQ(Encode(**decoded), bytes) << frame.index();
  }
}

TEST(Frames, FieldsKeepTheirValues) {
  const auto start = std::get<StartEpoch>(**DecodeOne(Encode(Samples()[1])));
  EXPECT_EQ(start.term, 5);
  EXPECT_EQ(start.log_folder, "/logs");
  EXPECT_THAT(start.env, ::testing::ElementsAre("A=1", ""));
  EXPECT_THAT(start.workers.at(0).argv, ::testing::ElementsAre("sh", "-c", ""));
  EXPECT_THAT(start.workers.at(0).env, ::testing::ElementsAre("B=2"));
  const auto state = std::get<ShimState>(**DecodeOne(Encode(Samples()[16])));
  EXPECT_EQ(state.slots.at(0).exit.message, "start worker rank 3: no");
  EXPECT_EQ(state.exchanges.at(0).value, std::string("a\0b", 3));
}

TEST(Frames, ArriveWholeHoweverTheStreamIsCut) {
  std::string stream;
  for (const Frame& frame : Samples()) stream += Encode(frame);
  for (const size_t piece : {1u, 2u, 3u, 7u, 64u, 4096u}) {
    Decoder decoder;
    size_t seen = 0;
    for (size_t at = 0; at < stream.size(); at += piece) {
      decoder.Feed(absl::string_view(stream).substr(at, piece));
      for (;;) {
        auto next = decoder.Next();
        ASSERT_TRUE(next.ok()) << next.status();
        if (!next->has_value()) break;
        EXPECT_EQ((*next)->index(), seen++);
      }
    }
    EXPECT_EQ(seen, Samples().size());
  }
}

TEST(Frames, AFrameCutAtAnyByteIsNeverTakenForAWholeOne) {
  for (const Frame& frame : Samples()) {
    const std::string bytes = Encode(frame);
    for (size_t size = 0; size < bytes.size(); ++size) {
      // The stream ends early: more is waited for.
      const auto waiting = DecodeOne(bytes.substr(0, size));
      ASSERT_TRUE(waiting.ok() && !waiting->has_value()) << frame.index() << " at " << size;
      // The length agrees with the cut: the payload is refused.
      if (size < 6) continue;
      std::string cut = bytes.substr(0, size);
      const uint32_t length = static_cast<uint32_t>(size - 4);
      std::memcpy(cut.data(), &length, sizeof(length));
      ASSERT_FALSE(DecodeOne(cut).ok()) << frame.index() << " at " << size;
    }
    std::string longer = bytes + "x";
    const uint32_t length = static_cast<uint32_t>(longer.size() - 4);
    std::memcpy(longer.data(), &length, sizeof(length));
    EXPECT_FALSE(DecodeOne(longer).ok()) << frame.index() << " with a byte too many";
  }
}

TEST(Frames, HugeCountsAreRefusedWithoutAllocating) {
  for (const Frame& frame : Samples()) {
    const std::string bytes = Encode(frame);
    for (size_t at = 6; at + 4 <= bytes.size(); ++at) {
      for (const uint32_t huge : {0xffffffffu, 0x7fffffffu, 0x00ffffffu}) {
        std::string hostile = bytes;
        std::memcpy(hostile.data() + at, &huge, sizeof(huge));
        const auto decoded = DecodeOne(hostile);  // refused, or only a number changed
        if (decoded.ok()) {
          ASSERT_TRUE(decoded->has_value());
          ASSERT_EQ(Encode(**decoded).size(), hostile.size());
        }
      }
    }
  }
}

TEST(Frames, AFrameAboveTheLimitEndsTheConnectionBeforeItArrives) {
  const uint32_t length = kMaxFrameBytes + 1;
  const std::string header(reinterpret_cast<const char*>(&length), sizeof(length));
  const auto decoded = DecodeOne(header);
  EXPECT_EQ(decoded.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(decoded.status().message()), HasSubstr("the limit is"));
  const std::string empty(4, '\0');
  EXPECT_FALSE(DecodeOne(empty).ok());
}

TEST(Frames, AnUnknownTypeIsAnErrorThatStays) {
  std::string bytes = Encode(Release{});
  bytes[4] = static_cast<char>(200);
  Decoder decoder;
  decoder.Feed(bytes);
  EXPECT_THAT(std::string(decoder.Next().status().message()), HasSubstr("unknown frame type 200"));
  decoder.Feed(Encode(Release{}));
  EXPECT_FALSE(decoder.Next().ok());
}

TEST(Frames, RandomBytesNeverDoMoreThanFail) {
  std::mt19937 random(1);
  for (int round = 0; round < 20000; ++round) {
    std::string bytes(6 + random() % 100, '\0');
    for (char& c : bytes) c = static_cast<char>(random());
    const uint32_t length = static_cast<uint32_t>(bytes.size() - 4);
    const uint16_t type = static_cast<uint16_t>(random() % (std::variant_size_v<Frame> + 1));
    std::memcpy(bytes.data(), &length, sizeof(length));
    std::memcpy(bytes.data() + 4, &type, sizeof(type));
    Decoder decoder;
    decoder.Feed(bytes);
    while (true) {
      const auto next = decoder.Next();
      if (!next.ok() || !next->has_value()) break;
    }
  }
}

}  // namespace
}  // namespace trainctl::frame
