// The whole training loop, ranks as threads: what does not depend on processes and sockets.
#include "runtime/trainer/trainer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <sstream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "kernels/compute_thread.h"
#include "runtime/checkpoint/reader.h"
#include "tests/unit/scratch.h"
#include "tests/unit/trainer/idx_bytes.h"
#include "tests/unit/trainer/thread_workers.h"

namespace trainctl {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

constexpr int kTrainImages = 230;  // three global batches of 64 and one of 38
constexpr int kPixels = 6;

// Images of which the brightest column tells the label.
void WriteImages(const Scratch& scratch, const std::string& prefix, uint32_t count) {
  std::mt19937 random(count);
  std::string images;
  std::string labels;
  for (uint32_t i = 0; i < count; ++i) {
    const int label = static_cast<int>(random() % kPixels);
    labels += static_cast<char>(label);
    for (int p = 0; p < kPixels * kPixels; ++p) {
      images += static_cast<char>(random() % 64 + (p % kPixels == label ? 150 : 0));
    }
  }
  scratch.Write(prefix + "-images-idx3-ubyte", Idx({count, kPixels, kPixels}, images));
  scratch.Write(prefix + "-labels-idx1-ubyte", Idx({count}, labels));
}

struct Outcome {
  std::vector<absl::Status> statuses;
  std::vector<double> losses;  // by step, the newest if a step was done again
  std::string parameters;      // digest
};

// Passes everything on, and flips one bit of one sum: a bad memory module.
class FlippingCommunicator final : public Communicator {
 public:
  FlippingCommunicator(Communicator* real, int at_sum) : real_(real), at_sum_(at_sum) {}
  int rank() const override { return real_->rank(); }
  int size() const override { return real_->size(); }
  absl::Status AllReduceSum(float* data, size_t count, int bucket) override {
    const absl::Status status = real_->AllReduceSum(data, count, bucket);
    if (bucket == 0 && at_sum_-- == 0) {
      uint32_t bits;
      std::memcpy(&bits, data, sizeof(bits));
      bits ^= 1u << 22;
      std::memcpy(data, &bits, sizeof(bits));
    }
    return status;
  }
  absl::Status AllReduceSum(double* data, size_t count) override {
    return real_->AllReduceSum(data, count);
  }
  absl::Status ReduceScatterSum(const float* data, float* out, size_t count) override {
    return real_->ReduceScatterSum(data, out, count);
  }
  absl::Status AllGather(const void* in, void* out, size_t bytes) override {
    return real_->AllGather(in, out, bytes);
  }
  absl::Status Broadcast(void* data, size_t bytes, int root) override {
    return real_->Broadcast(data, bytes, root);
  }
  absl::Status Barrier() override { return real_->Barrier(); }
  void Abort(absl::string_view reason) override { real_->Abort(reason); }

 private:
  Communicator* real_;
  int at_sum_;
};

class TrainerTest : public testing::Test {
 protected:
  void SetUp() override {
    ops::PrepareComputeThread();
    WriteImages(scratch_, "train", kTrainImages);
    WriteImages(scratch_, "t10k", 50);
    scratch_.Write("text",
                   std::string(40, 'a') +
                       "It was the best of times, it was the worst of "
                       "times, it was the age of wisdom, it was the age of foolishness, it was the "
                       "epoch of belief, it was the epoch of incredulity");
  }

  TrainConfig Config(int64_t steps, bool checkpoints = false) {
    std::string text = absl::StrCat(
        R"({"model":{"kind":"mlp","hidden":[32,16],"dropout":0.1},"data":{"kind":"fashion_mnist","path":")",
        scratch_.path(), R"("},"optimizer":{"kind":"adamw","lr":0.01,"clip":1.0,"schedule":)",
        R"({"warmup":5,"decay":"cosine"}},"batch":{"global":64,"micro":10},"drift_check_every":7,)",
        R"("steps":)", steps);
    if (checkpoints) {
      absl::StrAppend(&text, R"(,"checkpoint":{"dir":")", scratch_.File("checkpoints"),
                      R"(","every_steps":10,"keep":2})");
    }
    auto config = ParseTrainConfig(absl::StrCat(text, "}"));
    EXPECT_TRUE(config.ok()) << config.status();
    return *config;
  }

  // `on_start` may touch a rank's page before it trains.
  Outcome Train(const TrainConfig& config, int world_size, TrainerOptions options = {},
                const std::function<void(Session&)>& on_start = {}) {
    options.loss_file = scratch_.File(absl::StrCat("losses", runs_));
    Outcome run;
    heard_.notes.clear();
    run.statuses =
        RunRanks(world_size, &heard_, runs_++, [&](Session& session, Communicator& communicator) {
          ops::PrepareComputeThread();
          if (on_start) on_start(session);
          return trainctl::Train(config, options, session, communicator);
        });
    std::ifstream losses(options.loss_file);
    long step;
    char comma;
    double loss;
    while (losses >> step >> comma >> loss) {
      run.losses.resize(static_cast<size_t>(step));
      run.losses.back() = loss;
    }
    run.parameters = heard_.NoteWith("parameters xxh3-128:");
    return run;
  }

  std::vector<Step> Committed() { return ListCheckpoints(scratch_.File("checkpoints")).value(); }

  Scratch scratch_;
  Heard heard_;
  int64_t runs_ = 0;
};

TEST_F(TrainerTest, LearnsAndReportsTheTestResult) {
  const Outcome run = Train(Config(60), 2);
  ASSERT_TRUE(run.statuses[0].ok()) << run.statuses[0];
  ASSERT_THAT(run.losses, SizeIs(60));
  EXPECT_LT(run.losses.back(), 0.3 * run.losses.front());
  EXPECT_GT(heard_.metrics["test_top1"], 0.9);
  EXPECT_LT(heard_.metrics["test_loss"], 0.5);
}

TEST_F(TrainerTest, LossesOfAnyWorldAreEqualAndTwoRunsAreBitIdentical) {
  const Outcome one = Train(Config(50), 1);
  for (int world_size : {2, 3, 4}) {
    const Outcome run = Train(Config(50), world_size);
    ASSERT_THAT(run.losses, SizeIs(50));
    for (size_t s = 0; s < 50; ++s) {
      ASSERT_NEAR(run.losses[s] / one.losses[s], 1, 1e-5) << "step " << s + 1;
    }
    const Outcome again = Train(Config(50), world_size);
    EXPECT_EQ(again.losses, run.losses);
    EXPECT_EQ(again.parameters, run.parameters);
    EXPECT_NE(run.parameters, "");
  }
}

TEST_F(TrainerTest, MoreRanksThanSamplesInAShortBatchStillTrain) {
  TrainConfig config = Config(12);
  config.global_batch = 114;  // the last batch of a pass has 2 samples, for 4 ranks
  const Outcome four = Train(config, 4);
  const Outcome one = Train(config, 1);
  ASSERT_THAT(four.losses, SizeIs(12));
  for (size_t s = 0; s < 12; ++s) EXPECT_NEAR(four.losses[s] / one.losses[s], 1, 1e-5);
}

TEST_F(TrainerTest, ResumedRunIsBitIdenticalToTheUndisturbedOne) {
  const Outcome whole = Train(Config(40), 2);
  TrainConfig config = Config(40, true);
  ASSERT_TRUE(Train(config, 2).statuses[0].ok());
  ASSERT_THAT(Committed(), ElementsAre(Step(10), Step(20), Step(30), Step(40)));
  for (int64_t from : {10, 20, 30, 40}) {
    TrainerOptions options;
    options.resume_from = JoinPath(scratch_.File("checkpoints"), StepFolderName(Step(from)));
    const Outcome resumed = Train(config, 2, options);
    ASSERT_TRUE(resumed.statuses[0].ok()) << resumed.statuses[0];
    EXPECT_EQ(resumed.parameters, whole.parameters) << from;
    for (size_t s = static_cast<size_t>(from); s < resumed.losses.size(); ++s) {
      EXPECT_EQ(resumed.losses[s], whole.losses[s]);
    }
  }
}

TEST_F(TrainerTest, CheckpointOfAnotherWorldSizeIsResumed) {
  const Outcome whole = Train(Config(40), 4);
  ASSERT_TRUE(Train(Config(40, true), 1).statuses[0].ok());
  TrainerOptions options;
  options.resume_from = JoinPath(scratch_.File("checkpoints"), StepFolderName(Step(20)));
  const Outcome resumed = Train(Config(40, true), 4, options);
  ASSERT_TRUE(resumed.statuses[0].ok()) << resumed.statuses[0];
  ASSERT_THAT(resumed.losses, SizeIs(40));
  for (size_t s = 20; s < 40; ++s) {
    EXPECT_NEAR(resumed.losses[s] / whole.losses[s], 1, 1e-4) << s;
  }
}

TEST_F(TrainerTest, DamagedCheckpointIsToldAndThePreviousOneUsed) {
  const Outcome whole = Train(Config(30), 2);
  ASSERT_TRUE(Train(Config(30, true), 2).statuses[0].ok());
  for (int64_t step : {20, 30}) {
    const std::string path =
        JoinPath(scratch_.File(absl::StrCat("checkpoints/", StepFolderName(Step(step)))),
                 ShardFileName(1, 2));
    std::string bytes = ReadFile(path).value();
    bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 4);
    std::ofstream(path, std::ios::binary) << bytes;
  }
  const Outcome resumed = Train(Config(30, true), 2);
  ASSERT_TRUE(resumed.statuses[0].ok()) << resumed.statuses[0];
  ASSERT_THAT(heard_.rejected, SizeIs(2));
  EXPECT_EQ(heard_.rejected[1].first, 20);
  EXPECT_EQ(resumed.parameters, whole.parameters);
  EXPECT_THAT(Committed(), ElementsAre(Step(10), Step(20), Step(30)));
  EXPECT_TRUE(LoadShard(OpenCheckpoint(scratch_.File("checkpoints"), Step(30)).value(), 1).ok());
}

TEST_F(TrainerTest, EmptyResumePathStartsFromTheBeginning) {
  ASSERT_TRUE(Train(Config(20, true), 2).statuses[0].ok());
  TrainerOptions options;
  options.resume_from = "";
  EXPECT_THAT(Train(Config(20, true), 2, options).losses, SizeIs(20));
  EXPECT_GT(Train(Config(20, true), 2, options).losses[0], 0);
}

TEST_F(TrainerTest, DeletesWhatTheGrantAllowsAndAloneWhatRetentionDecides) {
  heard_.may_delete = {10};
  ASSERT_TRUE(Train(Config(30, true), 2).statuses[0].ok());
  EXPECT_THAT(Committed(), ElementsAre(Step(20), Step(30)));
  heard_.may_delete.clear();
  TrainerOptions options;
  options.decides_retention = true;
  ASSERT_TRUE(Train(Config(60, true), 1, options).statuses[0].ok());
  EXPECT_THAT(Committed(), ElementsAre(Step(50), Step(60)));
}

TEST_F(TrainerTest, StopSeenByOneRankStopsAllAtOneStepAndSaves) {
  const Outcome run = Train(Config(1000, true), 3, {}, [](Session& session) {
    if (session.identity().rank == 1) session.page().stop_requested.store(1);
  });
  for (const absl::Status& status : run.statuses) EXPECT_TRUE(status.ok()) << status;
  EXPECT_THAT(run.losses, SizeIs(1));
  EXPECT_THAT(Committed(), ElementsAre(Step(1)));
  EXPECT_THAT(heard_.metrics, IsEmpty());
  EXPECT_THAT(heard_.NoteWith("stopped"), HasSubstr("after step 1 of 1000"));
}

TEST_F(TrainerTest, CheckpointRequestIsServedOnceByAllRanks) {
  ASSERT_TRUE(Train(Config(9, true), 3, {},
                    [](Session& session) { session.page().checkpoint_requested.fetch_add(1); })
                  .statuses[0]
                  .ok());
  EXPECT_THAT(heard_.published, ElementsAre(1, 9));
}

TEST_F(TrainerTest, ReplicaThatDriftedStopsTheRunBeforeItIsSaved) {
  TrainConfig config = Config(40, true);
  config.drift_check_every = 1000;  // so that the check before a checkpoint finds it
  const auto statuses = RunRanks(3, &heard_, 0, [&](Session& session, Communicator& communicator) {
    ops::PrepareComputeThread();
    FlippingCommunicator flipping(&communicator, 14);  // in the sum of step 15
    Communicator& used = communicator.rank() == 1 ? flipping : communicator;
    return trainctl::Train(config, {}, session, used);
  });
  for (const absl::Status& status : statuses) {
    EXPECT_THAT(std::string(status.message()), HasSubstr("at step 20 tensor "));
    EXPECT_THAT(std::string(status.message()), HasSubstr("of rank 1 differs"));
  }
  EXPECT_THAT(Committed(), ElementsAre(Step(10)));
}

TEST_F(TrainerTest, DivergenceEndsAllRanksWithOneReason) {
  TrainConfig config = Config(50);
  config.schedule.peak = 1000;
  config.schedule.warmup_steps = 0;
  config.optimizer.kind = OptimizerOptions::Kind::kSgd;
  config.clip = 0;
  const Outcome run = Train(config, 2);
  for (const absl::Status& status : run.statuses) {
    EXPECT_THAT(std::string(status.message()), HasSubstr("training has diverged"));
  }
}

TEST_F(TrainerTest, AnotherModelOrSeedDoesNotResume) {
  ASSERT_TRUE(Train(Config(10, true), 2).statuses[0].ok());
  TrainConfig config = Config(20, true);
  config.model.hidden = {8};
  EXPECT_THAT(std::string(Train(config, 2).statuses[0].message()),
              HasSubstr("give this run another checkpoint folder"));
  config = Config(20, true);
  config.seed = 9;
  EXPECT_THAT(std::string(Train(config, 2).statuses[0].message()), HasSubstr("with seed 1"));
}

TEST_F(TrainerTest, LanguageModelTrainsTheSameOnOneAndTwoRanks) {
  auto config = ParseTrainConfig(absl::StrCat(
      R"({"model":{"kind":"gpt","layers":1,"width":16,"heads":2,"context":8},"data":{"kind":"text",)",
      R"("path":")", scratch_.File("text"), R"("},"optimizer":{"kind":"adamw","lr":0.01},)",
      R"("batch":{"global":4,"micro":1},"epochs":3})"));
  ASSERT_TRUE(config.ok()) << config.status();
  const Outcome one = Train(*config, 1);
  ASSERT_TRUE(one.statuses[0].ok()) << one.statuses[0];
  const double perplexity = heard_.metrics["validation_perplexity"];
  EXPECT_GT(perplexity, 1);
  EXPECT_LT(one.losses.back(), one.losses.front());
  const Outcome two = Train(*config, 2);
  EXPECT_NEAR(heard_.metrics["validation_perplexity"] / perplexity, 1, 1e-4);
  ASSERT_EQ(two.losses.size(), one.losses.size());
  for (size_t s = 0; s < one.losses.size(); ++s)
    EXPECT_NEAR(two.losses[s] / one.losses[s], 1, 1e-5);
}

}  // namespace
}  // namespace trainctl
