#include "runtime/trainer/mlp.h"

#include <gtest/gtest.h>

#include <random>

#include "runtime/trainer/optimizer.h"
#include "tests/unit/trainer/model_case.h"

namespace trainctl {
namespace {

constexpr int64_t kInputs = 19, kClasses = 5, kImages = 12;

MlpOptions SmallMlp(double dropout) {
  return {
      .inputs = kInputs, .hidden = {13, 11}, .classes = kClasses, .dropout = dropout, .seed = 9};
}

struct Images {
  std::vector<float> features;
  std::vector<int32_t> targets;
  std::vector<int64_t> ids;

  Images() {
    std::mt19937 engine(1);
    std::normal_distribution<float> normal;
    for (int64_t s = 0; s < kImages; ++s) {
      for (int64_t i = 0; i < kInputs; ++i) features.push_back(normal(engine));
      targets.push_back(static_cast<int32_t>(s % kClasses));
      ids.push_back(1000 - 3 * s);
    }
  }
  Batch Slice(int64_t first, int64_t count) const {
    return {.count = count,
            .features = features.data() + first * kInputs,
            .targets = targets.data() + first,
            .ids = ids.data() + first};
  }
};

TEST(Mlp, RegistersWeightAndBiasOfEachLayerInForwardOrder) {
  Mlp mlp(SmallMlp(0));
  ASSERT_EQ(mlp.parameters().size(), 6u);
  EXPECT_EQ(mlp.parameters()[2].name, "layers.1.weight");
  EXPECT_EQ(mlp.parameters()[2].shape, (std::vector<int64_t>{11, 13}));
  EXPECT_TRUE(mlp.parameters()[2].decay);
  EXPECT_FALSE(mlp.parameters()[3].decay);
}

TEST(Mlp, GradientsMatchFiniteDifferences) {
  const Images data;
  for (double dropout : {0.0, 0.3}) {
    ModelCase c(std::make_unique<Mlp>(SmallMlp(dropout)));
    c.ExpectGradientsMatchFiniteDifferences(data.Slice(0, kImages), 5e-3);
  }
}

TEST(Mlp, CallsReadyOnceForEachFinalGradient) {
  const Images data;
  ModelCase c(std::make_unique<Mlp>(SmallMlp(0.3)));
  c.ExpectEveryParameterIsReadyOnce(data.Slice(0, kImages));
}

TEST(Mlp, LossAndGradientsDoNotDependOnTheSplitIntoMicroBatches) {
  const Images data;
  ModelCase c(std::make_unique<Mlp>(SmallMlp(0.3)));
  const auto slice = [&](int64_t first, int64_t count) { return data.Slice(first, count); };
  const double whole = c.AccumulateInMicroBatches(kImages, kImages, 0.1f, slice);
  const auto gradients = c.gradients();
  for (int64_t parts : {2, 4}) {
    const double split = c.AccumulateInMicroBatches(kImages, kImages / parts, 0.1f, slice);
    EXPECT_NEAR(split, whole, 1e-6 * whole);
    EXPECT_LE(RelativeDifference(c.gradients(), gradients), 1e-6);
  }
}

TEST(Mlp, RepeatsBitForBit) {
  const Images data;
  ModelCase a(std::make_unique<Mlp>(SmallMlp(0.3))), b(std::make_unique<Mlp>(SmallMlp(0.3)));
  const Batch batch = data.Slice(0, kImages);
  EXPECT_EQ(a.model().ForwardBackward(batch, 1.0f, 1, IgnoreReady),
            b.model().ForwardBackward(batch, 1.0f, 1, IgnoreReady));
  EXPECT_EQ(a.gradients(), b.gradients());
}

TEST(Mlp, AnotherStepDropsOtherElements) {
  const Images data;
  ModelCase c(std::make_unique<Mlp>(SmallMlp(0.3)));
  const Batch batch = data.Slice(0, kImages);
  EXPECT_NE(c.model().ForwardBackward(batch, 1.0f, 1, IgnoreReady),
            c.model().ForwardBackward(batch, 1.0f, 2, IgnoreReady));
}

TEST(Mlp, LearnsItsTrainingData) {
  const Images data;
  ModelCase c(std::make_unique<Mlp>(SmallMlp(0)));
  Optimizer optimizer({.kind = OptimizerOptions::Kind::kAdamW}, c.model().parameters());
  const Batch batch = data.Slice(0, kImages);
  for (int64_t step = 0; step < 200; ++step) {
    c.model().ForwardBackward(batch, 1.0f / kImages, static_cast<uint64_t>(step), IgnoreReady);
    c.Update(optimizer, 1e-2, step);
  }
  const EvaluateResult result = c.model().Evaluate(batch);
  EXPECT_EQ(result.correct, kImages);
  EXPECT_EQ(result.count, kImages);
  EXPECT_LT(result.loss_sum / kImages, 0.05);
}

TEST(Mlp, WithoutHiddenLayersIsLogisticRegression) {
  const Images data;
  ModelCase c(std::make_unique<Mlp>(
      MlpOptions{.inputs = kInputs, .hidden = {}, .classes = kClasses, .dropout = 0, .seed = 0}));
  c.ExpectGradientsMatchFiniteDifferences(data.Slice(0, kImages), 5e-3);
}

}  // namespace
}  // namespace trainctl
