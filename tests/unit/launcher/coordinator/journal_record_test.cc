#include "launcher/coordinator/journal_record.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace trainctl {
namespace {

Failure AFailure() {
  Failure failure;
  failure.failure_class = FailureClass::kHang;
  failure.node = "n1";
  failure.rank = 3;
  failure.epoch = Epoch(2);
  failure.exit = {WorkerExit::Kind::kSignaled, 9, true, true, 11, 22, "m", "tail", "{}"};
  failure.reason = "because";
  return failure;
}

// One of each, every field different from its default.
std::vector<JournalRecord> OneOfEach() {
  return {TermStarted{Term(7)},
          EpochFormed{Epoch(1),
                      {{"n1", "m1", "a", 0, 2, "eth0"}, {"n2", "m2", "b", 2, 1, ""}},
                      "a",
                      29500,
                      "why",
                      33,
                      Step(44)},
          EpochStarted{Epoch(1)},
          EpochCondemned{Epoch(1), AFailure(), 55, Step(66)},
          EpochReplaced{Epoch(1), "why", 55, Step(66)},
          NodeDrained{"n1", true, 77},
          NodeLost{Epoch(1), "n1", 77},
          CommitGranted{Epoch(1), Step(77)},
          CheckpointCommitted{Epoch(1), Step(77)},
          CheckpointDropped{Step(10), true, "damaged"},
          Stopping{"Ctrl-C", true},
          Finished{{Outcome::Kind::kStopped, 3, "reason", AFailure()}, 88},
          Finished{{Outcome::Kind::kSucceeded, 0, "done", std::nullopt}, 88}};
}

TEST(JournalRecord, ComesBackAsItWas) {
  std::vector<bool> seen(std::variant_size_v<JournalRecord>);
  for (const JournalRecord& record : OneOfEach()) {
    seen[record.index()] = true;
    const std::string bytes = EncodeRecord(record);
    const auto decoded = DecodeRecord(bytes);
    ASSERT_TRUE(decoded.ok()) << decoded.status();
    EXPECT_EQ(decoded->index(), record.index());
    EXPECT_EQ(EncodeRecord(*decoded), bytes);
  }
  for (const bool one : seen) EXPECT_TRUE(one);
  const auto decoded =
      DecodeRecord(EncodeRecord(Finished{{Outcome::Kind::kStopped, 3, "reason", AFailure()}, 88}));
  const auto& finished = std::get<Finished>(*decoded);
  EXPECT_EQ(finished.outcome.failure->exit.output_tail, "tail");
  EXPECT_EQ(finished.outcome.failure->exit.kind, WorkerExit::Kind::kSignaled);
  EXPECT_EQ(finished.outcome.failure->failure_class, FailureClass::kHang);
  EXPECT_EQ(finished.wall_ns, 88);
}

TEST(JournalRecord, APartIsNoRecord) {
  for (const JournalRecord& record : OneOfEach()) {
    const std::string bytes = EncodeRecord(record);
    for (size_t n = 0; n < bytes.size(); ++n) {
      EXPECT_EQ(DecodeRecord(bytes.substr(0, n)).status().code(), absl::StatusCode::kDataLoss);
    }
    EXPECT_EQ(DecodeRecord(bytes + "x").status().code(), absl::StatusCode::kDataLoss);
  }
}

TEST(JournalRecord, AnyByteMayBeWrongWithoutHarm) {
  for (const JournalRecord& record : OneOfEach()) {
    const std::string bytes = EncodeRecord(record);
    for (size_t i = 0; i < bytes.size(); ++i) {
      for (int bit = 0; bit < 8; ++bit) {
        std::string wrong = bytes;
        wrong[i] = static_cast<char>(wrong[i] ^ (1 << bit));
        const auto decoded = DecodeRecord(wrong);
        if (decoded.ok()) {
          EXPECT_EQ(EncodeRecord(*decoded).size(), wrong.size());
        }
      }
    }
  }
}

TEST(JournalRecord, RefusesEnumsOutOfRange) {
  std::string bytes = EncodeRecord(Finished{{Outcome::Kind::kPreempted, 0, "", std::nullopt}, 0});
  bytes[1] = 4;
  EXPECT_FALSE(DecodeRecord(bytes).ok());
  EXPECT_FALSE(DecodeRecord(std::string("\x63")).ok());
}

}  // namespace
}  // namespace trainctl
