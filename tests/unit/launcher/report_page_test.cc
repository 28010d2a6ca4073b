#include "launcher/report_page.h"

#include <limits>

#include "gmock/gmock.h"
#include "launcher/chart.h"
#include "launcher/progress_series.h"
#include "runtime/json/json_text.h"

namespace trainctl {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr char kReport[] = R"({
  "schema": 1, "job": "ab12", "name": "<digits>", "outcome": "failed", "reason": "rank 1 on n1 hangs",
  "steps": 40, "final_loss": 0.25, "restarts": 1, "metrics": {"test_top1": 0.9},
  "goodput": {"seconds_total": 20, "seconds_training": 15,
              "lost_by_cause": {"starting": 2, "node lost": 3, "worker": 0}},
  "epochs": [
    {"number": 0, "world_size": 2, "nodes": ["n1"], "reason": "the job was submitted",
     "started": "2026-01-01T00:00:00.000Z", "ended": "2026-01-01T00:00:10.000Z"},
    {"number": 1, "world_size": 2, "nodes": ["n1", "n2"], "reason": "rank 1 was killed",
     "started": "2026-01-01T00:00:11.000Z", "ended": "2026-01-01T00:00:20.000Z"}],
  "recovery": [{"detect_ms": 1, "stop_ms": 20, "form_ms": 2, "spawn_ms": 5, "connect_ms": null,
                "load_ms": 100, "first_step_ms": 30, "total_ms": 158, "steps_lost": 7}],
  "progress": [{"seconds": 1, "step": 1, "loss": 2.5, "samples_per_second": 0},
               {"seconds": 9, "step": 20, "loss": 1.0, "samples_per_second": 100},
               {"seconds": 19, "step": 40, "loss": 0.25, "samples_per_second": 120}],
  "first_failure": {"reason": "it <hangs>", "class": "hang", "rank": 1, "output_tail": "a && b"}
})";

TEST(ReportPage, ShowsWhatHappenedAndStandsAlone) {
  const std::string page = *ReportPage(kReport);
  for (const char* shown :
       {"Job &lt;digits&gt; (ab12)", "failed", "training: 15.00 s (75.0 %)", "node lost: 3.00 s",
        "<polyline", "epoch 1: rank 1 was killed", "it &lt;hangs&gt;", "a &amp;&amp; b", "100.0 ms",
        "n1, n2", "test_top1"}) {
    EXPECT_THAT(page, HasSubstr(shown));
  }
  for (const char* elsewhere : {"http://", "https://", "<script", "src=", "<hangs>"}) {
    EXPECT_THAT(page, Not(HasSubstr(elsewhere)));
  }
}

TEST(ReportPage, AReportOfAnotherVersionIsShownAsFarAsItGoes) {
  for (const char* text :
       {"{}", R"({"epochs": 3, "goodput": [], "recovery": {}, "progress": "x"})",
        R"({"epochs": [1, {"nodes": 7}], "recovery": [null], "metrics": [1]})"}) {
    EXPECT_TRUE(ReportPage(text).ok()) << text;
    EXPECT_TRUE(ReportTimeline(text).ok()) << text;
  }
  for (const char* text : {"", "[]", "{\"job\": ", "7"}) {
    EXPECT_THAT(ReportPage(text).status().message(), HasSubstr("report.json")) << text;
  }
}

TEST(ReportTimeline, HasABarForEachEpochAndEachStageOfARecovery) {
  const auto trace = ParseJson(*ReportTimeline(kReport));
  std::map<std::string, std::pair<double, double>> bars;
  int counters = 0;
  for (const auto& event : trace["traceEvents"]) {
    if (event["ph"] == "X") bars[event["name"]] = {event["ts"], event["dur"]};
    if (event["ph"] == "C") ++counters;
  }
  EXPECT_EQ(bars["epoch 0"], std::pair(0.0, 10e6));
  EXPECT_EQ(bars["epoch 1"], std::pair(11e6, 9e6));
  // 23 ms of detecting, stopping and forming end where the epoch starts.
  EXPECT_NEAR(bars["detect"].first, 11e6 - 23e3, 1);
  EXPECT_NEAR(bars["load"].first, 11e6 + 5e3, 1);
  EXPECT_EQ(bars.count("connect"), 0u);
  EXPECT_EQ(counters, 6);
}

TEST(Chart, WhatCannotBeDrawnIsLeftOut) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_THAT(LineChart({"t", "s", {}, {}}), IsEmpty());
  EXPECT_THAT(LineChart({"t", "s", {{0, 1}, {1, nan}}, {}}), IsEmpty());
  for (const auto& points : {std::vector<std::pair<double, double>>{{0, 1}, {0, 1}},
                             {{0, 0}, {1, 0}},
                             {{0, 1e300}, {1, -1e300}},
                             {{0, 1e-300}, {1e9, 2e-300}}}) {
    const std::string svg = LineChart({"t", "s", points, {{0.5, "m"}}});
    EXPECT_THAT(svg, HasSubstr("polyline"));
    EXPECT_THAT(svg, Not(HasSubstr("nan")));
    EXPECT_LT(svg.size(), 10'000u);
  }
  EXPECT_THAT(ShareBar({{"a", 0, "red"}, {"b", -1, "blue"}}, "s"), IsEmpty());
}

TEST(ProgressSeries, KeepsBothEndsOfARunOfAnyLength) {
  ProgressSeries series;
  for (uint64_t i = 0; i < 100'000; ++i) {
    series.Add({static_cast<double>(i), 0, i, 1.0, 2.0});
    ASSERT_LE(series.points().size(), ProgressSeries::kMost);
  }
  EXPECT_EQ(series.points().front().step, 0u);
  EXPECT_EQ(series.points().back().step, 99'999u);
  EXPECT_GT(series.points().size(), ProgressSeries::kMost / 4);
  double widest = 0;
  for (size_t i = 1; i < series.points().size(); ++i) {
    widest = std::max(widest, series.points()[i].seconds - series.points()[i - 1].seconds);
  }
  EXPECT_LT(widest, 5.0 * 100'000 / ProgressSeries::kMost);
}

}  // namespace
}  // namespace trainctl
