#include "runtime/supervisor/records.h"

#include <string>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"

namespace trainctl {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

frame::Exchange Published(int32_t rank, const std::string& name, const std::string& value = "v") {
  return frame::Exchange{1, rank, name, value, 0};
}

template <typename T>
std::vector<T> Only(const std::vector<frame::Frame>& frames) {
  std::vector<T> found;
  for (const frame::Frame& frame : frames) {
    if (const T* f = std::get_if<T>(&frame)) found.push_back(*f);
  }
  return found;
}

TEST(Records, AnAnswerGoesOnceToEachLocalRankThatPublished) {
  Records records;
  records.Keep(Published(0, "a"));
  records.Keep(Published(1, "a"));
  records.Keep(Published(1, "b"));
  EXPECT_THAT(records.TakeWaiting("a"), ElementsAre(0, 1));
  EXPECT_THAT(records.TakeWaiting("a"), IsEmpty());
  EXPECT_THAT(records.TakeWaiting("c"), IsEmpty());
  records.Keep(Published(0, "a"));  // asked again after it reconnected
  EXPECT_THAT(records.TakeWaiting("a"), ElementsAre(0));
}

TEST(Records, AnsweredExchangesAreStillToldToANewStore) {
  Records records;
  records.Keep(Published(0, "a", "old"));
  records.Keep(Published(0, "a", "new"));
  records.TakeWaiting("a");
  const auto all = records.Exchanges();
  ASSERT_THAT(all, SizeIs(1));
  EXPECT_EQ(all[0].value, "new");
}

TEST(Records, ExchangesAreBoundedAndTheWaitingOnesStay) {
  Records records;
  const std::string big(1 << 20, 'x');
  records.Keep(Published(0, "waiting", big));
  for (int i = 0; i < 100; ++i) {
    const std::string name = absl::StrCat("done", i);
    records.Keep(Published(0, name, big));
    records.TakeWaiting(name);
  }
  size_t bytes = 0;
  for (const auto& e : records.Exchanges()) bytes += e.value.size();
  EXPECT_LE(bytes, Records::kExchangeBytes);
  EXPECT_THAT(records.TakeWaiting("waiting"), ElementsAre(0));
}

TEST(Records, APublishedCheckpointMakesItsShardsOldNews) {
  Records records;
  for (const int step : {10, 10, 20}) {
    records.Keep(frame::ShardPrepared{1, step, {0, "f", 1, "d"}});
  }
  EXPECT_THAT(Only<frame::ShardPrepared>(records.TakeForNewDaemon()), SizeIs(2));
  records.Keep(frame::CheckpointPublished{1, 10});
  const auto frames = records.TakeForNewDaemon();
  ASSERT_THAT(Only<frame::ShardPrepared>(frames), SizeIs(1));
  EXPECT_EQ(Only<frame::ShardPrepared>(frames)[0].step, 20);
  EXPECT_EQ(Only<frame::CheckpointPublished>(frames).at(0).step, 10);
}

TEST(Records, TheLastValueOfAMetricWinsAndNotesAreToldOnce) {
  Records records;
  records.Keep(frame::Metric{1, 0, "loss", 2});
  records.Keep(frame::Metric{1, 0, "loss", 1});
  records.KeepUnsent(frame::Note{1, 0, "hello"});
  const auto first = records.TakeForNewDaemon();
  ASSERT_THAT(Only<frame::Metric>(first), SizeIs(1));
  EXPECT_EQ(Only<frame::Metric>(first)[0].value, 1);
  EXPECT_THAT(Only<frame::Note>(first), SizeIs(1));
  const auto second = records.TakeForNewDaemon();
  EXPECT_THAT(Only<frame::Metric>(second), SizeIs(1));
  EXPECT_THAT(Only<frame::Note>(second), IsEmpty());
}

TEST(Records, EverythingElseIsBoundedToo) {
  Records records;
  for (int i = 0; i < 10000; ++i) {
    records.Keep(frame::Metric{1, 0, absl::StrCat("m", i), 0});
    records.KeepUnsent(frame::Note{1, 0, "n"});
    records.Keep(frame::CheckpointRejected{1, i, "r"});
    records.Keep(frame::ShardPrepared{1, i, {0, "f", 1, "d"}});
  }
  EXPECT_LE(records.TakeForNewDaemon().size(),
            Records::kMetrics + Records::kNotes + Records::kRejections + Records::kShards);
}

}  // namespace
}  // namespace trainctl
