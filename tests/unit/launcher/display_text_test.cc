#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "launcher/line_assembler.h"
#include "launcher/progress_text.h"
#include "launcher/update_json.h"

namespace trainctl {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;
using ::testing::StartsWith;

class Lines {
 public:
  void Add(absl::string_view data) {
    assembler_.Add(data, [this](absl::string_view line) { lines.emplace_back(line); });
  }
  void Finish() {
    assembler_.Finish([this](absl::string_view line) { lines.emplace_back(line); });
  }
  size_t Break() { return assembler_.Break(); }
  std::vector<std::string> lines;

 private:
  LineAssembler assembler_;
};

TEST(LineAssembler, JoinsPieces) {
  Lines lines;
  lines.Add("loss ");
  EXPECT_THAT(lines.lines, SizeIs(0));
  lines.Add("0.1\nnext");
  lines.Add("\n\nlast");
  lines.Finish();
  EXPECT_THAT(lines.lines, ElementsAre("loss 0.1", "next", "", "last"));
}

TEST(LineAssembler, GivesTheSameLinesWhateverThePieces) {
  const std::string text = "a\r\nb\rc\n\n\rd\r\r\ne\n";
  Lines whole;
  whole.Add(text);
  Lines pieces;
  for (char c : text) {
    pieces.Add(std::string(1, c));
  }
  EXPECT_THAT(whole.lines, ElementsAre("a", "b", "c", "", "d", "e"));
  EXPECT_EQ(pieces.lines, whole.lines);
}

TEST(LineAssembler, ShowsNothingOfALineWhoseEndIsLost) {
  Lines lines;
  lines.Add("45541\n4554");
  EXPECT_EQ(lines.Break(), 4u);
  lines.Add("128220\n");
  EXPECT_THAT(lines.lines, ElementsAre("45541", "128220"));
  EXPECT_EQ(lines.Break(), 0u);
}

TEST(LineAssembler, CutsEndlessLines) {
  Lines lines;
  lines.Add(std::string(3 * kLongestLine + 5, 'x'));
  EXPECT_THAT(lines.lines, SizeIs(3));
  EXPECT_THAT(lines.lines[0], SizeIs(kLongestLine));
  lines.Finish();
  EXPECT_EQ(lines.lines.back(), "xxxxx");
}

TEST(ProgressText, SaysWhereTrainingIs) {
  ProgressSeen progress;
  progress.step = 1200;
  progress.total_steps = 2000;
  progress.samples = 1200 * 256;
  progress.samples_per_second = 12345;
  progress.loss = 0.33123;
  progress.data_epoch = 3.2;
  EXPECT_EQ(ProgressText(progress),
            "epoch 3.20  step 1200/2000  loss 0.3312  12.3k samples/s  ETA 0:17");
  EXPECT_EQ(ProgressBar(progress, 12), "[######....]");
}

TEST(ProgressText, LeavesOutWhatIsUnknown) {
  ProgressSeen progress;
  progress.step = 3;
  progress.loss = 2;
  EXPECT_EQ(ProgressText(progress), "step 3  loss 2");
  progress.loss = 0;  // resumed, and no step done since
  EXPECT_EQ(ProgressText(progress), "step 3");
  EXPECT_EQ(ProgressBar(progress, 12), "");
  EXPECT_LT(SecondsLeft(progress), 0);
}

TEST(ProgressText, WritesTimesAndRates) {
  EXPECT_EQ(SecondsText(42), "0:42");
  EXPECT_EQ(SecondsText(725), "12:05");
  EXPECT_EQ(SecondsText(3 * 3600 + 7 * 60), "3:07:00");
  EXPECT_EQ(RateText(0.5), "0.50");
  EXPECT_EQ(RateText(945), "945");
  EXPECT_EQ(RateText(1.2e6), "1.20M");
}

TEST(UpdateJson, AJobHasTheSameKeysWhereverItIsShown) {
  const JobLine line = {"a-1", "a", "running", 7, 1700000000, "/s/a-1"};
  const std::string common =
      R"({"schema":1,"type":"job","job":"a-1","name":"a","state":"running","step":7,)"
      R"("started":1700000000,"job_folder":"/s/a-1")";
  EXPECT_EQ(JobJson(line), common + "}\n");
  EXPECT_THAT(JobJson(line, JobDescription()), StartsWith(common + ","));
  EXPECT_THAT(JobJson(line, ReportSeen(), "/r"), StartsWith(common + ","));
}

TEST(UpdateJson, IsOneLineWithASchema) {
  const std::string line = LineJson(2, 1, 2, "bad \xff byte \"quoted\"");
  EXPECT_EQ(line.back(), '\n');
  EXPECT_EQ(line.find('\n'), line.size() - 1);
  EXPECT_THAT(line,
              HasSubstr(R"({"schema":1,"type":"output","epoch":2,"rank":1,"stream":"stderr")"));
  EXPECT_THAT(UpdateJson(JobEnded{"failed", 1, "why", "/r", "s"}),
              HasSubstr(R"("outcome":"failed","exit_status":1)"));
  ProgressSeen not_a_number;
  not_a_number.loss = 0.0 / 0.0;
  EXPECT_THAT(UpdateJson(not_a_number), HasSubstr(R"("loss":null)"));
}

}  // namespace
}  // namespace trainctl
