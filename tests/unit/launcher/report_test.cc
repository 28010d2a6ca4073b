#include "launcher/report.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/json/json_text.h"

namespace trainctl {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kStart = 1'700'000'000'000'000'000;

int64_t Wall(double seconds_later) { return kStart + static_cast<int64_t>(seconds_later * 1e9); }

JobSpec Spec() {
  JobSpec spec;
  spec.job_id = "ab12";
  spec.name = "digits";
  spec.job_folder = "/jobs/ab12";
  spec.log_folder = "/jobs/ab12/logs";
  spec.checkpoint_folder = "/ckpt";
  return spec;
}

EpochFormed Formed(int number, double at, Step resume) {
  EpochFormed formed;
  formed.epoch = Epoch(number);
  formed.nodes = {{"n1", "", "", 0, 2}};
  formed.reason = "the job was submitted";
  formed.wall_ns = Wall(at);
  formed.resume_step = resume;
  return formed;
}

EpochCondemned Condemned(double at, Instant exit, Step last) {
  EpochCondemned condemned;
  condemned.epoch = Epoch(0);
  condemned.failure.rank = 1;
  condemned.failure.node = "n1";
  condemned.failure.epoch = Epoch(0);
  condemned.failure.reason = "rank 1 on n1 was killed by SIGKILL";
  condemned.failure.exit.kind = WorkerExit::Kind::kSignaled;
  condemned.failure.exit.code = 9;
  condemned.failure.exit.exit_ns = exit.ns;
  condemned.failure.exit.output_tail = "line \xff one\nline two\n";
  condemned.wall_ns = Wall(at);
  condemned.last_step = last;
  return condemned;
}

ProgressSeen At(int epoch, uint64_t step, uint32_t phase, uint64_t samples) {
  ProgressSeen progress;
  progress.epoch = Epoch(epoch);
  progress.step = step;
  progress.phase = phase;
  progress.samples = samples;
  progress.loss = 0.5;
  return progress;
}

// One epoch of 10 s that reaches step 100, a recovery point at 60, and a second epoch.
Report TwoEpochs() {
  Report report(Spec());
  const Instant t0{1'000'000'000};
  report.Take(Formed(0, 0, Step(-1)), t0);
  report.Progress(At(0, 1, 3, 64), t0, t0);
  report.Take(CheckpointCommitted{Epoch(0), Step(60)}, t0 + seconds(6));
  report.Progress(At(0, 100, 3, 6400), t0, t0 + seconds(10));
  report.Take(Condemned(10, t0 + milliseconds(9998), Step(100)), t0 + seconds(10));
  report.Gone(Epoch(0), t0 + milliseconds(10'010));
  report.Take(Formed(1, 10.02, Step(60)), t0 + milliseconds(10'012));
  report.Spawned(Epoch(1), t0 + milliseconds(10'020));
  report.Connected(Epoch(1), t0 + milliseconds(10'050));
  report.Progress(At(1, 60, 2, 3840), kNever, t0 + milliseconds(10'080));
  report.Progress(At(1, 61, 3, 3904), t0 + milliseconds(10'100), t0 + milliseconds(10'120));
  return report;
}

TEST(Report, ShowsWhereTheTimeOfARecoveryWent) {
  const auto json = ParseJson(TwoEpochs().Json(Wall(20)));
  const auto& recovery = json["recovery"].at(0);
  EXPECT_DOUBLE_EQ(recovery["detect_ms"], 2);
  EXPECT_DOUBLE_EQ(recovery["stop_ms"], 10);
  EXPECT_DOUBLE_EQ(recovery["form_ms"], 2);
  EXPECT_DOUBLE_EQ(recovery["spawn_ms"], 8);
  EXPECT_DOUBLE_EQ(recovery["connect_ms"], 30);
  EXPECT_DOUBLE_EQ(recovery["load_ms"], 30);
  EXPECT_DOUBLE_EQ(recovery["first_step_ms"], 20);
  EXPECT_DOUBLE_EQ(recovery["total_ms"], 102);
  EXPECT_EQ(recovery["steps_lost"], 40);
  EXPECT_EQ(json["restarts"], 1);
}

TEST(Report, NamesTheFirstFailureWithItsSignalAndLastWords) {
  const auto json = ParseJson(TwoEpochs().Json(Wall(20)));
  const auto& failure = json["first_failure"];
  EXPECT_EQ(failure["rank"], 1);
  EXPECT_EQ(failure["signal"], 9);
  EXPECT_TRUE(failure["code"].is_null());
  EXPECT_THAT(failure["output_tail"].get<std::string>(), HasSubstr("line two"));
  EXPECT_TRUE(json["outcome"].is_null());
  EXPECT_TRUE(json["epochs"].at(1)["ended"].is_null());
  EXPECT_EQ(json["epochs"].at(0)["started"], "2023-11-14T22:13:20.000Z");
}

TEST(Report, CountsStepsThatAreDoneAgainAsLost) {
  const auto json = ParseJson(TwoEpochs().Json(Wall(20)));
  const auto& goodput = json["goodput"];
  EXPECT_DOUBLE_EQ(goodput["seconds_total"], 20);
  // 40 of 100 steps, done in 10 s, were done again.
  EXPECT_NEAR(goodput["lost_in"]["steps_redone"], 4, 0.01);
  EXPECT_NEAR(goodput["lost_in"]["recovering"], 0.02, 1e-6);
  // All of it, and the start that followed, is the failed worker's doing.
  EXPECT_GT(goodput["lost_by_cause"]["worker"], 4.01);
  double in = 0, by_cause = 0;
  for (const auto& [name, seconds] : goodput["lost_in"].items()) in += seconds.get<double>();
  for (const auto& [name, seconds] : goodput["lost_by_cause"].items()) {
    by_cause += seconds.get<double>();
  }
  EXPECT_NEAR(in, by_cause, 1e-9);
}

TEST(Report, KeepsWhatTheJournalHoldsAndLeavesOutWhatOnlyTheDeadCoordinatorSaw) {
  Report report(Spec());
  report.Take(Formed(0, 0, Step(-1)), kNever);
  report.Take(Condemned(10, Instant{5}, Step(100)), kNever);
  report.Take(Formed(1, 10.5, Step(60)), kNever);
  const auto json = ParseJson(report.Json(Wall(20)));
  EXPECT_EQ(json["recovery"].at(0)["steps_lost"], 40);
  EXPECT_TRUE(json["recovery"].at(0)["detect_ms"].is_null());
  EXPECT_EQ(json["first_failure"]["rank"], 1);
}

TEST(Report, TheClosingLinesSayWhatFailedAndWhereToLook) {
  Report report = TwoEpochs();
  Finished finished;
  finished.outcome.kind = Outcome::Kind::kFailed;
  finished.outcome.exit_status = 1;
  finished.outcome.reason = "no restart is left";
  finished.outcome.failure = Condemned(20, Instant{1}, Step(80)).failure;
  finished.outcome.failure->exit.error_json = R"({"message": {"message": "ValueError: no data"}})";
  finished.wall_ns = Wall(20);
  report.Take(finished, Instant{2});
  report.Metric("test_top1", 0.75);
  const std::string summary = report.Summary();
  EXPECT_THAT(summary, HasSubstr("job digits (ab12) failed after 20.0 s: no restart is left"));
  EXPECT_THAT(summary, HasSubstr("rank 1 on n1 was killed by SIGKILL"));
  EXPECT_THAT(summary, HasSubstr("ValueError: no data"));
  EXPECT_THAT(summary, HasSubstr("| line two"));
  EXPECT_THAT(summary, HasSubstr("/ckpt/step-000000060"));
  EXPECT_THAT(summary, HasSubstr("/jobs/ab12/report.json"));
  EXPECT_THAT(summary, HasSubstr("test_top1:"));
}

TEST(Report, SamplesOfALoadedCheckpointAreNoRate) {
  Report report(Spec());
  report.Take(Formed(0, 0, Step(60)), Instant{1});
  report.Progress(At(0, 0, 1, 0), kNever, Instant{2});
  report.Progress(At(0, 60, 3, 3840), kNever, Instant{2} + seconds(1));
  EXPECT_EQ(report.samples_per_second(), 0);
  report.Progress(At(0, 61, 3, 3904), kNever, Instant{2} + seconds(2));
  EXPECT_DOUBLE_EQ(report.samples_per_second(), 64);
}

TEST(Report, ARunThatIsReadOnceHasARateAndTheTimeAfterItsLastStepIsNoneOfIt) {
  Report report(Spec());
  report.Take(Formed(0, 0, Step(-1)), Instant{1});
  const Instant first_step = Instant{1} + seconds(1);
  report.Progress(At(0, 11, 8, 704), first_step, first_step + seconds(2));
  const auto rate = [&] { return ParseJson(report.Json(Wall(9)))["samples_per_second"]; };
  EXPECT_DOUBLE_EQ(rate(), 320);  // ten steps of 64 in 2 s
  report.Progress(At(0, 11, 8, 704), first_step, first_step + seconds(9));
  EXPECT_DOUBLE_EQ(rate(), 320);
}

TEST(Report, ARunThatFoundAllStepsDoneTellsNoLossAndNoRate) {
  Report report(Spec());
  report.Take(Formed(0, 0, Step(60)), Instant{1});
  ProgressSeen progress = At(0, 60, 8, 3840);
  progress.loss = 0;
  report.Progress(progress, kNever, Instant{2});
  Finished finished;
  finished.wall_ns = Wall(1);
  report.Take(finished, Instant{3});
  EXPECT_THAT(report.Summary(), HasSubstr("  steps:      60\n"));
  EXPECT_TRUE(ParseJson(report.Json(Wall(1)))["final_loss"].is_null());
}

}  // namespace
}  // namespace trainctl
