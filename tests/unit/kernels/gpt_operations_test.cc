#include <gtest/gtest.h>

#include "kernels/attention.h"
#include "kernels/attention_reference.h"
#include "kernels/embedding.h"
#include "kernels/gelu.h"
#include "kernels/gelu_reference.h"
#include "kernels/layer_norm.h"
#include "kernels/layer_norm_reference.h"
#include "tests/unit/kernels/compare.h"

namespace trainctl {
namespace {

struct Shape {
  int64_t rows, width;
};
const std::vector<Shape> kShapes = {{1, 1}, {3, 7}, {6, 8}, {37, 129}, {64, 64}, {1025, 20}};

TEST(Gelu, MatchesReferenceBothWays) {
  for (const auto& [rows, width] : kShapes) {
    const auto b = RandomArray(width, 1);
    auto x = RandomArray(rows * width, 2, 3.0f), y = Poisoned(rows * width);
    auto want_x = Double(x), want_y = Double(y);
    ops::BiasGeluForward(b.data(), x.data(), y.data(), rows, width);
    reference::BiasGeluForward(Double(b).data(), want_x.data(), want_y.data(), rows, width);
    EXPECT_LE(RelativeError(y, want_y), kTolerance);
    EXPECT_LE(RelativeError(x, want_x), kTolerance);
    auto dy = RandomArray(rows * width, 3), db = RandomArray(width, 4);
    auto want_dy = Double(dy), want_db = Double(db);
    ops::BiasGeluBackward(x.data(), dy.data(), db.data(), rows, width);
    reference::BiasGeluBackward(want_x.data(), want_dy.data(), want_db.data(), rows, width);
    EXPECT_LE(RelativeError(dy, want_dy), kTolerance);
    EXPECT_LE(RelativeError(db, want_db), kTolerance);
  }
}

TEST(Gelu, IsAccurateElementByElementAndSaturates) {
  std::vector<float> x;
  for (int i = -12'000; i <= 12'000; ++i) x.push_back(static_cast<float>(i) * 1e-3f);
  x.insert(x.end(), {-1e4f, 1e4f});
  const auto input = x;
  const std::vector<float> b(x.size(), 0.0f);
  auto y = Poisoned(static_cast<int64_t>(x.size()));
  auto want_x = Double(x), want_y = Double(y);
  const auto width = static_cast<int64_t>(x.size());
  ops::BiasGeluForward(b.data(), x.data(), y.data(), 1, width);
  reference::BiasGeluForward(Double(b).data(), want_x.data(), want_y.data(), 1, width);
  for (size_t i = 0; i < x.size(); ++i) {
    const double magnitude = std::max(1.0, std::abs(static_cast<double>(input[i])));
    EXPECT_NEAR(y[i], want_y[i], 3e-7 * magnitude) << input[i];
    EXPECT_NEAR(x[i], want_x[i], 1e-6) << input[i];
  }
}

TEST(LayerNorm, MatchesReferenceBothWays) {
  for (const auto& [rows, width] : kShapes) {
    if (width == 1) continue;  // all outputs are the bias, and relative errors mean nothing
    for (bool with_residual : {false, true}) {
      const auto residual = RandomArray(rows * width, 1), weight = RandomArray(width, 2);
      const auto bias = RandomArray(width, 3);
      auto x = RandomArray(rows * width, 4), y = Poisoned(rows * width), mean = Poisoned(rows);
      auto inverse = Poisoned(rows);
      auto want_x = Double(x), want_y = Double(y), want_mean = Double(mean);
      auto want_inverse = Double(inverse);
      const auto double_residual = Double(residual);
      ops::ResidualNormForward(with_residual ? residual.data() : nullptr, weight.data(),
                               bias.data(), x.data(), y.data(), mean.data(), inverse.data(), rows,
                               width);
      reference::ResidualNormForward(with_residual ? double_residual.data() : nullptr,
                                     Double(weight).data(), Double(bias).data(), want_x.data(),
                                     want_y.data(), want_mean.data(), want_inverse.data(), rows,
                                     width);
      EXPECT_LE(RelativeError(x, want_x), kTolerance);
      EXPECT_LE(RelativeError(y, want_y), kTolerance);
      EXPECT_LE(RelativeError(inverse, want_inverse), kTolerance);

      const auto dy = RandomArray(rows * width, 5);
      auto dx = RandomArray(rows * width, 6), dweight = RandomArray(width, 7);
      auto dbias = RandomArray(width, 8);
      auto want_dx = Double(dx), want_dweight = Double(dweight), want_dbias = Double(dbias);
      ops::ResidualNormBackward(dy.data(), x.data(), mean.data(), inverse.data(), weight.data(),
                                dx.data(), dweight.data(), dbias.data(), rows, width);
      reference::ResidualNormBackward(Double(dy).data(), want_x.data(), want_mean.data(),
                                      want_inverse.data(), Double(weight).data(), want_dx.data(),
                                      want_dweight.data(), want_dbias.data(), rows, width);
      EXPECT_LE(RelativeError(dx, want_dx), kTolerance);
      EXPECT_LE(RelativeError(dweight, want_dweight), kTolerance);
      EXPECT_LE(RelativeError(dbias, want_dbias), kTolerance);
    }
  }
}

TEST(Embedding, AddsTokenAndPositionAndScattersTheGradient) {
  constexpr int64_t kContext = 3, kWidth = 5, kVocabulary = 4;
  const std::vector<int32_t> tokens = {0, 3, 3, 1, 3, 0};
  const auto token = RandomArray(kVocabulary * kWidth, 1);
  const auto position = RandomArray(kContext * kWidth, 2);
  auto y = Poisoned(6 * kWidth);
  ops::EmbeddingForward(tokens.data(), token.data(), position.data(), y.data(), 2, kContext, kWidth,
                        kVocabulary);
  const auto dy = RandomArray(6 * kWidth, 3);
  auto dtoken = RandomArray(kVocabulary * kWidth, 4), dposition = RandomArray(kContext * kWidth, 5);
  auto want_dtoken = Double(dtoken), want_dposition = Double(dposition);
  ops::EmbeddingBackward(tokens.data(), dy.data(), dtoken.data(), dposition.data(), 2, kContext,
                         kWidth);
  for (int64_t k = 0; k < 6; ++k) {
    for (int64_t i = 0; i < kWidth; ++i) {
      EXPECT_EQ(y[k * kWidth + i],
                token[tokens[k] * kWidth + i] + position[k % kContext * kWidth + i]);
      want_dtoken[tokens[k] * kWidth + i] += dy[k * kWidth + i];
      want_dposition[k % kContext * kWidth + i] += dy[k * kWidth + i];
    }
  }
  EXPECT_LE(RelativeError(dtoken, want_dtoken), kTolerance);
  EXPECT_LE(RelativeError(dposition, want_dposition), kTolerance);
}

const std::vector<ops::AttentionShape> kAttention = {
    {1, 1, 1, 1}, {2, 7, 3, 5}, {1, 64, 2, 32}, {2, 65, 1, 16}, {1, 150, 2, 33}};

TEST(Attention, MatchesReferenceBothWays) {
  for (const auto& a : kAttention) {
    const int64_t narrow = a.samples * a.context * a.width();
    const auto qkv = RandomArray(3 * narrow, 1, 1.5f), dy = RandomArray(narrow, 2);
    auto y = Poisoned(narrow), log_sums = Poisoned(a.samples * a.heads * a.context);
    auto dqkv = Poisoned(3 * narrow), scratch = Poisoned(ops::AttentionScratch(a));
    std::vector<double> want_y(y.size()), want_dqkv(dqkv.size());
    ops::AttentionForward(a, qkv.data(), y.data(), log_sums.data(), scratch.data());
    reference::AttentionForward(a, Double(qkv).data(), want_y.data());
    EXPECT_LE(RelativeError(y, want_y), kTolerance) << a.context;
    ops::AttentionBackward(a, dy.data(), qkv.data(), y.data(), log_sums.data(), dqkv.data(),
                           scratch.data());
    reference::AttentionBackward(a, Double(dy).data(), Double(qkv).data(), want_dqkv.data());
    EXPECT_LE(RelativeError(dqkv, want_dqkv), kTolerance) << a.context;
  }
}

TEST(Attention, LaterPositionsDoNotChangeEarlierOutputs) {
  const ops::AttentionShape a = {1, 70, 2, 8};
  auto qkv = RandomArray(70 * 3 * 16, 1);
  auto before = Poisoned(70 * 16), after = before, log_sums = Poisoned(140);
  auto scratch = Poisoned(ops::AttentionScratch(a));
  ops::AttentionForward(a, qkv.data(), before.data(), log_sums.data(), scratch.data());
  for (int64_t i = 30 * 48; i < 70 * 48; ++i) qkv[i] = 1e3f;
  ops::AttentionForward(a, qkv.data(), after.data(), log_sums.data(), scratch.data());
  for (int64_t i = 0; i < 30 * 16; ++i) EXPECT_EQ(before[i], after[i]);
}

}  // namespace
}  // namespace trainctl
