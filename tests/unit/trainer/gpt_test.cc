#include "runtime/trainer/gpt.h"

#include <gtest/gtest.h>

#include <random>
#include <string>

#include "runtime/trainer/optimizer.h"
#include "tests/unit/trainer/model_case.h"

namespace trainctl {
namespace {

constexpr int64_t kContext = 9, kVocabulary = 11, kSamples = 4;

GptOptions Options(double dropout) {
  return {.layers = 2,
          .width = 12,
          .heads = 3,
          .context = kContext,
          .vocabulary = kVocabulary,
          .dropout = dropout,
          .seed = 9};
}

struct Data {
  std::vector<int32_t> tokens, targets;
  std::vector<int64_t> ids;

  Data() {
    std::mt19937 engine(1);
    std::uniform_int_distribution<int32_t> token(0, kVocabulary - 1);
    for (int64_t i = 0; i < kSamples * kContext; ++i) {
      tokens.push_back(token(engine));
      targets.push_back(token(engine));
    }
    for (int64_t s = 0; s < kSamples; ++s) ids.push_back(70 - 3 * s);
  }
  Batch Slice(int64_t first, int64_t count) const {
    return {.count = count,
            .tokens = tokens.data() + first * kContext,
            .targets = targets.data() + first * kContext,
            .ids = ids.data() + first};
  }
  Batch Whole() const { return Slice(0, kSamples); }
};

// Weights far from their small first values, so that every path carries a gradient that shows in
// the loss.
std::unique_ptr<ModelCase> Case(double dropout) {
  auto c = std::make_unique<ModelCase>(std::make_unique<Gpt>(Options(dropout)));
  std::mt19937 engine(2);
  std::normal_distribution<float> normal(0.0f, 0.3f);
  for (auto& array : c->parameters()) {
    for (float& v : array) v += normal(engine);
  }
  return c;
}

TEST(Gpt, RegistersParametersInForwardOrder) {
  Gpt gpt(Options(0));
  const auto& specs = gpt.parameters();
  ASSERT_EQ(specs.size(), 2u + 2 * 12 + 2);
  EXPECT_EQ(specs[0].name, "token_embedding.weight");
  EXPECT_EQ(specs[4].name, "layers.0.attention.qkv.weight");
  EXPECT_EQ(specs[4].shape, (std::vector<int64_t>{36, 12}));
  EXPECT_TRUE(specs[4].decay);
  EXPECT_EQ(specs[24].name, "layers.1.mlp.contract.weight");
  EXPECT_EQ(specs[26].name, "norm.weight");
  EXPECT_FALSE(specs[26].decay);
}

TEST(Gpt, StartsAsAUniformGuess) {
  const Data data;
  ModelCase c(std::make_unique<Gpt>(Options(0)));
  const EvaluateResult result = c.model().Evaluate(data.Whole());
  EXPECT_EQ(result.count, kSamples * kContext);
  EXPECT_NEAR(result.loss_sum / static_cast<double>(result.count), std::log(kVocabulary), 0.05);
}

TEST(Gpt, GradientsMatchFiniteDifferences) {
  const Data data;
  for (double dropout : {0.0, 0.2}) {
    Case(dropout)->ExpectGradientsMatchFiniteDifferences(data.Whole(), 5e-3);
  }
}

TEST(Gpt, CallsReadyOnceForEachFinalGradient) {
  const Data data;
  Case(0.2)->ExpectEveryParameterIsReadyOnce(data.Whole());
}

TEST(Gpt, LossAndGradientsDoNotDependOnTheSplitIntoMicroBatches) {
  const Data data;
  auto c = Case(0.2);
  const auto slice = [&](int64_t first, int64_t count) { return data.Slice(first, count); };
  const double whole = c->AccumulateInMicroBatches(kSamples, kSamples, 0.1f, slice);
  const auto gradients = c->gradients();
  for (int64_t parts : {2, 4}) {
    const double split = c->AccumulateInMicroBatches(kSamples, kSamples / parts, 0.1f, slice);
    EXPECT_NEAR(split, whole, 1e-6 * whole);
    EXPECT_LE(RelativeDifference(c->gradients(), gradients), 2e-6);
  }
}

TEST(Gpt, RepeatsBitForBitAlsoAfterALargerBatch) {
  const Data data;
  auto a = Case(0.2), b = Case(0.2);
  b->model().ForwardBackward(data.Whole(), 1.0f, 0, IgnoreReady);
  b->ClearGradients();
  const Batch half = data.Slice(1, 2);
  EXPECT_EQ(a->model().ForwardBackward(half, 1.0f, 1, IgnoreReady),
            b->model().ForwardBackward(half, 1.0f, 1, IgnoreReady));
  EXPECT_EQ(a->gradients(), b->gradients());
}

TEST(Gpt, EvaluationIsTheLossWithoutDropout) {
  const Data data;
  auto c = Case(0);
  EXPECT_NEAR(c->model().Evaluate(data.Whole()).loss_sum,
              c->model().ForwardBackward(data.Whole(), 1.0f, 0, IgnoreReady), 1e-4);
}

TEST(Gpt, LearnsAShortTextByHeart) {
  const std::string text = "the same words, but never the same sentence, and then an end to it all";
  constexpr int64_t kLength = 32;
  ModelCase c(std::make_unique<Gpt>(
      GptOptions{.layers = 2, .width = 32, .heads = 4, .context = kLength, .vocabulary = 128}));
  std::vector<int32_t> tokens, targets;
  const std::vector<int64_t> ids = {0, 1};
  for (int64_t s : ids) {
    for (int64_t t = 0; t < kLength; ++t) {
      tokens.push_back(text[s * kLength + t]);
      targets.push_back(text[s * kLength + t + 1]);
    }
  }
  const Batch batch = {
      .count = 2, .tokens = tokens.data(), .targets = targets.data(), .ids = ids.data()};
  Optimizer optimizer({.kind = OptimizerOptions::Kind::kAdamW}, c.model().parameters());
  for (int64_t step = 0; step < 250; ++step) {
    c.model().ForwardBackward(batch, 1.0f / (2 * kLength), static_cast<uint64_t>(step),
                              IgnoreReady);
    c.Update(optimizer, 3e-3, step);
  }
  const EvaluateResult result = c.model().Evaluate(batch);
  EXPECT_EQ(result.correct, 2 * kLength);
  EXPECT_LT(result.loss_sum / static_cast<double>(result.count), 0.1);
}

}  // namespace
}  // namespace trainctl
