#include "runtime/trainer/optimizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "runtime/trainer/schedule.h"

namespace trainctl {
namespace {

std::vector<ParameterSpec> Specs() { return {{"w", {2, 3}, true}, {"b", {3}, false}}; }

TEST(Optimizer, NamesItsStateForACheckpoint) {
  Optimizer adamw({.kind = OptimizerOptions::Kind::kAdamW}, Specs());
  std::vector<std::string> names;
  for (const auto& s : adamw.state()) names.push_back(s.name);
  EXPECT_THAT(names,
              testing::ElementsAre("exp_avg.w", "exp_avg.b", "exp_avg_sq.w", "exp_avg_sq.b"));
  EXPECT_EQ(adamw.state()[3].parameter, 1);
  Optimizer sgd({.kind = OptimizerOptions::Kind::kSgd}, Specs());
  ASSERT_EQ(sgd.state().size(), 2u);
  EXPECT_EQ(sgd.state()[0].name, "momentum.w");
}

TEST(Optimizer, DecaysMatricesAndNotBiases) {
  for (auto kind : {OptimizerOptions::Kind::kAdamW, OptimizerOptions::Kind::kSgd}) {
    Optimizer optimizer({.kind = kind, .weight_decay = 0.5}, Specs());
    std::vector<float> w(6, 1.0f), b(3, 1.0f), gw(6, 0.0f), gb(3, 0.0f);
    optimizer.Step({w.data(), b.data()}, {gw.data(), gb.data()}, 0.1, 1, 0);
    EXPECT_NEAR(w[0], 0.95, 1e-6);
    EXPECT_EQ(b[0], 1.0f);
  }
}

TEST(Optimizer, ContinuesBitForBitFromItsSavedState) {
  for (auto kind : {OptimizerOptions::Kind::kAdamW, OptimizerOptions::Kind::kSgd}) {
    Optimizer a({.kind = kind}, Specs()), b({.kind = kind}, Specs());
    std::vector<float> w(6, 1.0f), bias(3, 1.0f);
    const auto step = [](Optimizer& o, std::vector<float>& x, std::vector<float>& y, int64_t n) {
      std::vector<float> gx(6, 0.1f + static_cast<float>(n)), gy(3, -0.2f);
      o.Step({x.data(), y.data()}, {gx.data(), gy.data()}, 0.1, 0.5, n);
    };
    for (int64_t n = 0; n < 5; ++n) step(a, w, bias, n);
    auto w2 = w, bias2 = bias;
    for (size_t s = 0; s < a.state().size(); ++s) {
      const int64_t size = Specs()[a.state()[s].parameter].size();
      std::copy_n(a.state()[s].data, size, b.state()[s].data);
    }
    for (int64_t n = 5; n < 10; ++n) step(a, w, bias, n);
    for (int64_t n = 5; n < 10; ++n) step(b, w2, bias2, n);
    EXPECT_EQ(w, w2);
    EXPECT_EQ(bias, bias2);
  }
}

TEST(Schedule, WarmsUpThenDecaysToTheFloor) {
  Schedule s = {.peak = 2, .warmup_steps = 4, .total_steps = 14, .floor = 0.1};
  EXPECT_DOUBLE_EQ(LearningRate(s, 0), 0.5);
  EXPECT_DOUBLE_EQ(LearningRate(s, 3), 2);
  EXPECT_DOUBLE_EQ(LearningRate(s, 13), 2);
  s.decay = Schedule::Decay::kLinear;
  EXPECT_DOUBLE_EQ(LearningRate(s, 4), 2);
  EXPECT_DOUBLE_EQ(LearningRate(s, 9), 2 * (0.1 + 0.9 * 0.5));
  EXPECT_DOUBLE_EQ(LearningRate(s, 14), 0.2);
  EXPECT_DOUBLE_EQ(LearningRate(s, 1000), 0.2);
  s.decay = Schedule::Decay::kCosine;
  EXPECT_DOUBLE_EQ(LearningRate(s, 4), 2);
  EXPECT_NEAR(LearningRate(s, 9), 2 * (0.1 + 0.9 * 0.5), 1e-12);
  EXPECT_NEAR(LearningRate(s, 6), 2 * (0.1 + 0.9 * 0.5 * (1 + std::cos(M_PI * 0.2))), 1e-12);
  EXPECT_NEAR(LearningRate(s, 14), 0.2, 1e-12);
}

TEST(Schedule, AWarmUpAsLongAsTheRunIsDefined) {
  const Schedule s = {
      .peak = 1, .warmup_steps = 10, .total_steps = 10, .decay = Schedule::Decay::kCosine};
  EXPECT_DOUBLE_EQ(LearningRate(s, 9), 1);
  EXPECT_DOUBLE_EQ(LearningRate(s, 10), 1);
  EXPECT_NEAR(LearningRate(s, 11), 0, 1e-12);
}

}  // namespace
}  // namespace trainctl
