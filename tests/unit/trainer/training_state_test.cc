#include "runtime/trainer/training_state.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"
#include "runtime/checkpoint/writer.h"
#include "runtime/trainer/recovery.h"
#include "tests/unit/scratch.h"
#include "tests/unit/trainer/thread_workers.h"

namespace trainctl {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

// Seven tensors whose values follow from `seed`.
class State {
 public:
  explicit State(float seed) {
    for (int t = 0; t < 7; ++t) {
      const int64_t rows = 2 + t, columns = 3 + 5 * (t % 3);
      values_.emplace_back(static_cast<size_t>(rows * columns));
      std::iota(values_.back().begin(), values_.back().end(), seed + static_cast<float>(100 * t));
      tensors_.push_back({absl::StrCat("tensor", t), {rows, columns}, nullptr, rows * columns});
    }
    for (size_t t = 0; t < tensors_.size(); ++t) tensors_[t].data = values_[t].data();
  }
  std::vector<StateTensor>& tensors() { return tensors_; }
  const std::vector<std::vector<float>>& values() const { return values_; }

 private:
  std::vector<StateTensor> tensors_;
  std::vector<std::vector<float>> values_;
};

void Write(const std::string& folder, State& state, int64_t step, int world_size) {
  CheckpointWriter writer(folder, Epoch(0));
  Manifest manifest;
  manifest.step = Step(step);
  manifest.world_size = world_size;
  for (int rank = 0; rank < world_size; ++rank) {
    auto shard = writer.WriteShard(Step(step), rank, world_size,
                                   ShardOf(state.tensors(), rank, world_size), {});
    ASSERT_TRUE(shard.ok()) << shard.status();
    manifest.shards.push_back(*shard);
  }
  ASSERT_TRUE(writer.Commit(manifest).ok());
}

void Damage(const std::string& folder, int64_t step, int rank, int world_size) {
  const std::string path =
      JoinPath(JoinPath(folder, StepFolderName(Step(step))), ShardFileName(rank, world_size));
  std::string bytes = ReadFile(path).value();
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  std::ofstream(path, std::ios::binary) << bytes;
}

TEST(AssignToRanks, SpreadsTheBytesAndIsTheSameEverywhere) {
  State state(0);
  const std::vector<int> ranks = AssignToRanks(state.tensors(), 3);
  EXPECT_EQ(ranks, AssignToRanks(state.tensors(), 3));
  std::vector<int64_t> load(3, 0);
  for (size_t t = 0; t < ranks.size(); ++t) load[ranks[t]] += state.tensors()[t].size;
  EXPECT_LE(*std::max_element(load.begin(), load.end()),
            *std::min_element(load.begin(), load.end()) + 104);  // the largest tensor
}

TEST(TrainingState, ShardsOfAnyNumberOfRanksLoadWhole) {
  for (int world_size : {1, 2, 5, 12}) {  // 12: some ranks have nothing to write
    Scratch scratch;
    State written(1), loaded(500);
    Write(scratch.path(), written, 10, world_size);
    const absl::Status status =
        LoadTensors(OpenCheckpoint(scratch.path(), Step(10)).value(), loaded.tensors());
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_EQ(loaded.values(), written.values());
  }
}

TEST(TrainingState, AnotherModelIsRefusedAndSaysWhichTensor) {
  Scratch scratch;
  State written(1);
  Write(scratch.path(), written, 10, 2);
  const FoundCheckpoint found = OpenCheckpoint(scratch.path(), Step(10)).value();
  const auto message = [&](State& state) {
    const absl::Status status = LoadTensors(found, state.tensors());
    EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
    return std::string(status.message());
  };
  State other_shape(1), fewer(1), more(1);
  other_shape.tensors()[3].shape = {3, 5};
  EXPECT_THAT(message(other_shape), HasSubstr("tensor tensor3 is F32 [5, 3], this model's is"));
  fewer.tensors().pop_back();
  EXPECT_THAT(message(fewer), HasSubstr("tensor tensor6 is not one of this model"));
  more.tensors().push_back({"extra", {1}, nullptr, 1});
  EXPECT_THAT(message(more), HasSubstr("tensor extra of this model and optimizer is not there"));
}

TEST(Progress, IsReadBackExactly) {
  Progress progress;
  progress.samples = 1234567;
  progress.position = {3, 17};
  progress.seed = 42;
  progress.data_samples = 60000;
  progress.bucket_plan = R"({"version":1})";
  progress.config = R"({"seed":42})";
  const auto parsed = ParseProgress(FormatProgress(progress), 42, 60000);
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(parsed->samples, 1234567);
  EXPECT_EQ(parsed->position, progress.position);
  EXPECT_EQ(parsed->bucket_plan, progress.bucket_plan);
  EXPECT_THAT(std::string(ParseProgress(FormatProgress(progress), 1, 60000).status().message()),
              HasSubstr("a run with seed 42, this one has 1"));
  EXPECT_THAT(std::string(ParseProgress(FormatProgress(progress), 42, 7).status().message()),
              HasSubstr("over 60000 samples, this data has 7"));
  for (const char* bad : {"", "[]", "{}", R"({"samples":1,"sampler":3})"}) {
    EXPECT_TRUE(absl::IsDataLoss(ParseProgress(bad, 42, 60000).status())) << bad;
  }
}

TEST(Progress, KeepsTheLossScaleOfFloat16AndWhatItSkipped) {
  Progress progress;
  progress.data_samples = 10;
  progress.config = "{}";
  progress.update = {97, 32768, 45};
  const auto parsed = ParseProgress(FormatProgress(progress), 0, 10);
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(parsed->update.updates, 97);
  EXPECT_EQ(parsed->update.loss_scale, 32768);
  EXPECT_EQ(parsed->update.good_steps, 45);
  progress.update = {97, 0, 0};
  EXPECT_EQ(ParseProgress(FormatProgress(progress), 0, 10)->update.loss_scale, 0);
}

TEST(PlanFile, IsAPlanOrTheManifestThatHoldsOne) {
  Scratch scratch;
  scratch.Write("plan.json", R"({"version": 1})");
  EXPECT_EQ(ReadPlanFile(scratch.File("plan.json")).value(), R"({"version": 1})");
  Manifest manifest;
  manifest.world_size = 1;
  manifest.shards = {{ShardFileName(0, 1), 0, ""}};
  manifest.state = R"({"bucket_plan":{"version":2}})";
  scratch.Write("manifest.json", FormatManifest(manifest).value());
  EXPECT_EQ(ReadPlanFile(scratch.File("manifest.json")).value(), R"({"version":2})");
  EXPECT_THAT(std::string(ReadPlanFile(scratch.File("none")).status().message()),
              HasSubstr("read the bucket plan"));
}

class RecoveryTest : public testing::Test {
 protected:
  // Recovers on `world_size` ranks; `break_rank` cannot read what others can.
  std::vector<absl::Status> Recover(int world_size, std::optional<Step> chosen,
                                    int broken_rank = -1, absl::Status broken = {}) {
    return RunRanks(world_size, &heard_, 0, [&](Session& session, Communicator& communicator) {
      State state(0);
      RecoveryOptions options;
      options.folder = scratch_.path();
      options.chosen = chosen;
      options.load = [&](const FoundCheckpoint& found) -> absl::Status {
        if (communicator.rank() == broken_rank && found.manifest.step == Step(300)) return broken;
        return LoadTensors(found, state.tensors());
      };
      options.rejected = [&](Step step, absl::string_view reason) {
        session.CheckpointRejected(step, reason);
      };
      ASSIGN_OR_RETURN(const auto found, trainctl::Recover(communicator, options));
      std::lock_guard<std::mutex> lock(heard_.mutex);
      steps_.push_back(found.has_value() ? found->manifest.step.value : -1);
      first_values_.push_back(state.values()[0][0]);
      return absl::OkStatus();
    });
  }
  void Commit(int64_t step) {
    State state(static_cast<float>(step));
    Write(scratch_.path(), state, step, 2);
  }

  Scratch scratch_;
  Heard heard_;
  std::vector<int64_t> steps_;
  std::vector<float> first_values_;
};

TEST_F(RecoveryTest, NothingThereStartsFresh) {
  Recover(3, std::nullopt);
  EXPECT_THAT(steps_, ElementsAre(-1, -1, -1));
}

TEST_F(RecoveryTest, TakesTheNewestOrTheChosenOnAllRanks) {
  for (int64_t step : {100, 200, 300}) Commit(step);
  Recover(3, std::nullopt);
  EXPECT_THAT(steps_, ElementsAre(300, 300, 300));
  steps_.clear();
  Recover(2, Step(200));
  EXPECT_THAT(steps_, ElementsAre(200, 200));
  EXPECT_THAT(heard_.rejected, IsEmpty());
}

TEST_F(RecoveryTest, FlippedBitFallsBackOnAllRanksAndIsToldOnce) {
  for (int64_t step : {100, 200, 300}) Commit(step);
  Damage(scratch_.path(), 300, 1, 2);
  Damage(scratch_.path(), 200, 0, 2);
  Recover(4, Step(300));
  EXPECT_THAT(steps_, ElementsAre(100, 100, 100, 100));
  EXPECT_THAT(first_values_, ElementsAre(100, 100, 100, 100));
  ASSERT_THAT(heard_.rejected, SizeIs(2));
  EXPECT_EQ(heard_.rejected[0].first, 300);
  EXPECT_THAT(heard_.rejected[0].second, HasSubstr("shard-00001-of-00002.safetensors: its digest"));
  EXPECT_EQ(heard_.rejected[1].first, 200);
}

TEST_F(RecoveryTest, DamageThatOneRankAloneSeesIsDamageForAll) {
  for (int64_t step : {200, 300}) Commit(step);
  Recover(3, Step(300), 2, absl::DataLossError("bad cable"));
  EXPECT_THAT(steps_, ElementsAre(200, 200, 200));
  EXPECT_THAT(heard_.rejected, ElementsAre(std::make_pair(int64_t{300}, std::string("bad cable"))));
}

TEST_F(RecoveryTest, ChosenOneThatIsGoneFallsBack) {
  Commit(100);
  Recover(2, Step(300));
  EXPECT_THAT(steps_, ElementsAre(100, 100));
  EXPECT_THAT(heard_.rejected[0].second, HasSubstr("No such file"));
}

TEST_F(RecoveryTest, EveryOneDamagedStartsFresh) {
  for (int64_t step : {100, 200}) Commit(step);
  Damage(scratch_.path(), 100, 1, 2);
  Damage(scratch_.path(), 200, 1, 2);
  Recover(2, std::nullopt);
  EXPECT_THAT(steps_, ElementsAre(-1, -1));
  EXPECT_THAT(heard_.rejected, SizeIs(2));
}

TEST_F(RecoveryTest, AnErrorThatIsNotDamageEndsAllRanks) {
  for (int64_t step : {200, 300}) Commit(step);
  const auto statuses = Recover(3, Step(300), 1, absl::FailedPreconditionError("of another model"));
  EXPECT_THAT(std::string(statuses[0].message()), HasSubstr("rank 1 failed"));
  EXPECT_EQ(statuses[1].message(), "of another model");
  EXPECT_THAT(std::string(statuses[2].message()), HasSubstr("rank 1 failed"));
  EXPECT_THAT(heard_.rejected, IsEmpty());
}

TEST(StepOfPath, TakesTheFoldersName) {
  EXPECT_EQ(StepOfPath("/a/b/step-000000200").value(), Step(200));
  EXPECT_EQ(StepOfPath("step-000000200").value(), Step(200));
  EXPECT_FALSE(StepOfPath("/a/b").ok());
  EXPECT_FALSE(StepOfPath("/a/step-200").ok());
}

}  // namespace
}  // namespace trainctl
