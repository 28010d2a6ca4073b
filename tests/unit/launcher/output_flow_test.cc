#include "launcher/output_flow.h"

#include <algorithm>
#include <map>
#include <random>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace trainctl {
namespace {

using ::testing::IsEmpty;
using ::testing::SizeIs;

const LogKey kLog{Epoch(0), 0, 1};

std::vector<RankPlace> OneRank() { return {{0, 0, "n1", ""}}; }

std::vector<OutputFlow::Ask> After(OutputFlow& flow, const LogKey& key) {
  std::vector<OutputFlow::Ask> asks;
  flow.After(key, &asks);
  return asks;
}

TEST(OutputFlow, AsksForNothingThatNobodyReads) {
  OutputFlow flow;
  EXPECT_THAT(flow.OpenEpoch(Epoch(0), OneRank()), IsEmpty());
  EXPECT_THAT(flow.NodeHere("n1", true), IsEmpty());
  EXPECT_TRUE(flow.Drained());
}

TEST(OutputFlow, AsksForBothLogsOfARankFromTheirBeginning) {
  OutputFlow flow;
  flow.OpenEpoch(Epoch(0), OneRank());
  flow.NodeHere("n1", true);
  const auto asks = flow.AddWatcher(1, {});
  ASSERT_THAT(asks, SizeIs(2));
  EXPECT_EQ(asks[0].offset, 0u);
  EXPECT_EQ(asks[1].log.stream, 2);
  EXPECT_FALSE(flow.Drained());
}

TEST(OutputFlow, AsksForTheNextWindowWhenTheFirstHasCome) {
  OutputFlow flow;
  flow.OpenEpoch(Epoch(0), OneRank());
  flow.NodeHere("n1", true);
  const uint64_t window = flow.AddWatcher(1, {})[0].limit;
  flow.Take("n1", kLog, 0, std::string(window, 'x'));
  const auto asks = After(flow, kLog);
  ASSERT_THAT(asks, SizeIs(1));
  EXPECT_EQ(asks[0].offset, window);
  EXPECT_EQ(asks[0].limit, 2 * window);
}

TEST(OutputFlow, ContinuesARequestOfWhichHalfHasCome) {
  OutputFlow flow;
  flow.OpenEpoch(Epoch(0), OneRank());
  flow.NodeHere("n1", true);
  const uint64_t window = flow.AddWatcher(1, {})[0].limit;
  const uint64_t half = window / 2;
  flow.Take("n1", kLog, 0, std::string(half - 1, 'x'));
  EXPECT_THAT(After(flow, kLog), IsEmpty());
  flow.Take("n1", kLog, half - 1, "x");
  const auto asks = After(flow, kLog);
  ASSERT_THAT(asks, SizeIs(1));
  EXPECT_EQ(asks[0].offset, window);
  EXPECT_EQ(asks[0].limit, half + window) << "never more than a window is on its way";
  EXPECT_THAT(After(flow, kLog), IsEmpty());
}

TEST(OutputFlow, AReaderWithoutRoomIsServedLaterFromWhereItWas) {
  OutputFlow flow;
  flow.OpenEpoch(Epoch(0), OneRank());
  flow.NodeHere("n1", true);
  const uint64_t window = flow.AddWatcher(1, {})[0].limit;
  flow.SetRoom(1, false);
  flow.Take("n1", kLog, 0, std::string(window, 'x'));
  EXPECT_THAT(After(flow, kLog), IsEmpty());
  const auto asks = flow.SetRoom(1, true);
  ASSERT_THAT(asks, SizeIs(1));
  EXPECT_EQ(asks[0].offset, window);
}

TEST(OutputFlow, AReaderThatComesBackGoesOnWhereItWas) {
  OutputFlow flow;
  flow.OpenEpoch(Epoch(0), OneRank());
  flow.OpenEpoch(Epoch(1), OneRank());
  flow.NodeHere("n1", true);
  const LogKey now{Epoch(1), 0, 1};
  const auto asks = flow.AddWatcher(1, {{now, 77}});
  ASSERT_THAT(asks, SizeIs(2));
  EXPECT_EQ(asks[0].log, now);
  EXPECT_EQ(asks[0].offset, 77u);
}

TEST(OutputFlow, TheFirstReaderGetsEpochsThatWereOverBeforeItCame) {
  OutputFlow flow;
  flow.NodeHere("n1", true);
  flow.OpenEpoch(Epoch(0), OneRank());
  flow.OpenEpoch(Epoch(1), OneRank());
  EXPECT_THAT(flow.AddWatcher(1, {}), SizeIs(4));
  EXPECT_THAT(flow.AddWatcher(2, {}), SizeIs(0)) << "what is asked for already serves it too";
}

TEST(OutputFlow, IsDrainedWhenEveryReaderHasEveryLogToItsEnd) {
  OutputFlow flow;
  flow.OpenEpoch(Epoch(0), OneRank());
  flow.NodeHere("n1", true);
  flow.AddWatcher(1, {});
  flow.Take("n1", kLog, 0, "abc");
  flow.Take("n1", kLog, 3, "");
  EXPECT_FALSE(flow.Drained());
  flow.Take("n1", {Epoch(0), 0, 2}, 0, "");
  EXPECT_TRUE(flow.Drained());
}

TEST(OutputFlow, DoesNotWaitForANodeThatIsGone) {
  OutputFlow flow;
  flow.OpenEpoch(Epoch(0), OneRank());
  flow.NodeHere("n1", true);
  flow.AddWatcher(1, {});
  flow.NodeHere("n1", false);
  EXPECT_TRUE(flow.Drained());
}

TEST(OutputFlow, IgnoresBytesOfANodeThatDoesNotHaveTheRank) {
  OutputFlow flow;
  flow.OpenEpoch(Epoch(0), OneRank());
  flow.NodeHere("n1", true);
  flow.AddWatcher(1, {});
  EXPECT_THAT(flow.Take("n2", kLog, 0, "abc"), IsEmpty());
}

TEST(OutputFlow, WhatIsGoneIsSkippedByThoseWhoHaveNotHadIt) {
  OutputFlow flow;
  flow.OpenEpoch(Epoch(0), OneRank());
  flow.NodeHere("n1", true);
  flow.AddWatcher(1, {});
  flow.AddWatcher(2, {{kLog, 150}});
  auto pieces = flow.Take("n1", kLog, 100, std::string(100, 'x'), 100);
  ASSERT_THAT(pieces, SizeIs(2));
  EXPECT_EQ(pieces[0].offset, 100u);
  EXPECT_EQ(pieces[0].skipped, 100u);
  EXPECT_EQ(pieces[0].data.size(), 100u);
  EXPECT_EQ(pieces[1].offset, 150u);
  EXPECT_EQ(pieces[1].skipped, 0u);
  EXPECT_EQ(pieces[1].data.size(), 50u);
  pieces = flow.Take("n1", kLog, 300, "", 100);
  ASSERT_THAT(pieces, SizeIs(2));
  EXPECT_EQ(pieces[0].skipped, 100u);
  flow.Take("n1", {Epoch(0), 0, 2}, 0, "");
  EXPECT_FALSE(flow.Drained()) << "the log has not ended";
  flow.Take("n1", kLog, 300, "");
  EXPECT_TRUE(flow.Drained());
}

// Readers come, go, stop and return while the node's connection breaks now and then; each must get
// every byte of every log once and in order, whatever the order of events.
TEST(OutputFlow, EveryReaderGetsEveryByteOnceInAnyOrderOfEvents) {
  int continued = 0;
  for (uint32_t seed = 0; seed < 300; ++seed) {
    std::mt19937 random(seed);
    const auto pick = [&random](size_t n) { return static_cast<size_t>(random() % n); };
    const std::vector<size_t> lengths = {900'000, 0, 3, 1'500'000};  // by rank, then stream
    OutputFlow flow;
    std::map<LogKey, OutputFlow::Ask> open;
    const auto send = [&open, &continued](const std::vector<OutputFlow::Ask>& asks) {
      for (const OutputFlow::Ask& ask : asks) {
        const auto [there, added] = open.emplace(ask.log, ask);
        const bool continues = !added && there->second.limit == ask.offset;
        if (continues) ++continued;
        if (continues) there->second.limit = ask.limit;
        if (!continues) there->second = ask;
      }
    };
    send(flow.OpenEpoch(Epoch(0), {{0, 0, "n1", ""}, {1, 1, "n1", ""}}));
    send(flow.NodeHere("n1", true));
    std::map<int, std::map<LogKey, uint64_t>> got;
    std::map<int, bool> here;
    for (const int watcher : {1, 2}) {
      here[watcher] = true;
      send(flow.AddWatcher(watcher, {}));
    }
    const auto length = [&](const LogKey& key) {
      return lengths[static_cast<size_t>(key.rank * 2 + key.stream - 1)];
    };
    for (int turn = 0; turn < 4000 && !(turn > 201 && open.empty() && flow.Drained()); ++turn) {
      const bool calm = turn > 200;
      const size_t action = calm ? 0 : pick(12);
      const int watcher = 1 + static_cast<int>(pick(2));
      if (action == 1) send(flow.SetRoom(watcher, pick(2) == 0));
      if (action == 2) {
        open.clear();
        send(flow.NodeHere("n1", false));
        send(flow.NodeHere("n1", true));
      }
      if (action == 3 && here[watcher]) flow.RemoveWatcher(watcher), here[watcher] = false;
      if (calm || (action == 4 && !here[watcher])) {
        for (auto& [id, present] : here) {
          if (!present) send(flow.AddWatcher(id, got[id])), present = true;
          send(flow.SetRoom(id, true));
        }
      }
      if (open.empty()) continue;
      auto chosen = std::next(open.begin(), static_cast<long>(pick(open.size())));
      OutputFlow::Ask& ask = chosen->second;
      const LogKey key = ask.log;
      const uint64_t end = std::min<uint64_t>(ask.limit, length(key));
      const size_t size = ask.offset >= end ? 0 : 1 + pick(end - ask.offset);
      const std::string data(size, 'x');
      for (const auto& piece : flow.Take("n1", key, ask.offset, data)) {
        ASSERT_EQ(piece.offset, got[piece.watcher][key]) << "seed " << seed;
        got[piece.watcher][key] += piece.data.size();
      }
      ask.offset += size;
      if (size == 0 || ask.offset >= ask.limit) open.erase(chosen);
      send(After(flow, key));
    }
    EXPECT_TRUE(flow.Drained()) << "seed " << seed;
    for (const int watcher : {1, 2}) {
      for (const int rank : {0, 1}) {
        for (const int stream : {1, 2}) {
          const LogKey key{Epoch(0), rank, stream};
          EXPECT_EQ(got[watcher][key], length(key)) << "seed " << seed;
        }
      }
    }
  }
  EXPECT_GT(continued, 0);
}

}  // namespace
}  // namespace trainctl
