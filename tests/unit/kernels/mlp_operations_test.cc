#include <gtest/gtest.h>

#include "kernels/classifier.h"
#include "kernels/classifier_reference.h"
#include "kernels/linear.h"
#include "kernels/linear_reference.h"
#include "kernels/relu.h"
#include "kernels/relu_reference.h"
#include "tests/unit/kernels/compare.h"

namespace trainctl {
namespace {

struct Layer {
  int64_t rows, in, out;
};

const std::vector<Layer> kLayers = {
    {1, 1, 1}, {3, 7, 5}, {17, 33, 10}, {37, 129, 67}, {64, 64, 64}};

TEST(Linear, ForwardMatchesReference) {
  for (const auto& [rows, in, out] : kLayers) {
    const auto x = RandomArray(rows * in, 1), w = RandomArray(out * in, 2), b = RandomArray(out, 3);
    auto y = Poisoned(rows * out);
    std::vector<double> want(y.size());
    ops::LinearForward(x.data(), w.data(), y.data(), rows, in, out);
    reference::LinearForward(Double(x).data(), Double(w).data(), nullptr, want.data(), rows, in,
                             out);
    EXPECT_LE(RelativeError(y, want), kTolerance);
    y = Poisoned(rows * out);
    ops::LinearBiasForward(x.data(), w.data(), b.data(), y.data(), rows, in, out);
    reference::LinearForward(Double(x).data(), Double(w).data(), Double(b).data(), want.data(),
                             rows, in, out);
    EXPECT_LE(RelativeError(y, want), kTolerance);
  }
}

TEST(Linear, BackwardMatchesReferenceAndAddsToParameterGradients) {
  for (const auto& [rows, in, out] : kLayers) {
    const auto x = RandomArray(rows * in, 1), w = RandomArray(out * in, 2);
    const auto dy = RandomArray(rows * out, 3);
    auto dx = Poisoned(rows * in), dw = RandomArray(out * in, 4), db = RandomArray(out, 5);
    std::vector<double> want_dx(dx.size()), want_dw = Double(dw), want_db = Double(db);
    ops::LinearBackwardInput(dy.data(), w.data(), dx.data(), rows, in, out);
    ops::LinearBackwardWeight(dy.data(), x.data(), dw.data(), rows, in, out);
    ops::BiasBackward(dy.data(), db.data(), rows, out);
    reference::LinearBackward(Double(dy).data(), Double(x).data(), Double(w).data(), want_dx.data(),
                              want_dw.data(), want_db.data(), rows, in, out);
    EXPECT_LE(RelativeError(dx, want_dx), kTolerance);
    EXPECT_LE(RelativeError(dw, want_dw), kTolerance);
    EXPECT_LE(RelativeError(db, want_db), kTolerance);
  }
}

TEST(Relu, MatchesReferenceBothWays) {
  for (const auto& [rows, in, out] : kLayers) {
    const auto b = RandomArray(out, 1);
    auto y = RandomArray(rows * out, 2), dy = RandomArray(rows * out, 3), db = RandomArray(out, 4);
    auto want_y = Double(y), want_dy = Double(dy), want_db = Double(db);
    ops::BiasReluForward(b.data(), y.data(), rows, out);
    reference::BiasReluForward(Double(b).data(), want_y.data(), rows, out);
    EXPECT_LE(RelativeError(y, want_y), kTolerance);
    ops::BiasReluBackward(y.data(), 1.25f, dy.data(), db.data(), rows, out);
    reference::BiasReluBackward(Double(y).data(), 1.25, want_dy.data(), want_db.data(), rows, out);
    EXPECT_LE(RelativeError(dy, want_dy), kTolerance);
    EXPECT_LE(RelativeError(db, want_db), kTolerance);
  }
}

TEST(Relu, LetsNanThrough) {
  std::vector<float> y = Poisoned(9);
  const std::vector<float> b(9, 1.0f);
  ops::BiasReluForward(b.data(), y.data(), 1, 9);
  for (float v : y) EXPECT_TRUE(std::isnan(v));
}

std::vector<int32_t> Targets(int64_t rows, int64_t classes) {
  std::vector<int32_t> targets;
  for (int64_t r = 0; r < rows; ++r) targets.push_back(static_cast<int32_t>(r * 7 % classes));
  return targets;
}

TEST(Classifier, MatchesReference) {
  for (const auto& [rows, in, classes] : kLayers) {
    auto logits = RandomArray(rows * classes, 1, 5.0f);
    const auto targets = Targets(rows, classes);
    auto want = Double(logits);
    const double want_loss =
        reference::ClassifierForwardBackward(want.data(), targets.data(), 0.5, rows, classes);
    const auto evaluated = ops::ClassifierEvaluate(logits.data(), targets.data(), rows, classes);
    const double loss =
        ops::ClassifierForwardBackward(logits.data(), targets.data(), 0.5f, rows, classes);
    EXPECT_NEAR(loss, want_loss, 1e-6 * want_loss + 1e-6);
    EXPECT_NEAR(evaluated.loss_sum, want_loss, 1e-6 * want_loss + 1e-6);
    EXPECT_LE(RelativeError(logits, want), kTolerance);
  }
}

TEST(Classifier, CountsTheFirstLargestLogitAsThePrediction) {
  const std::vector<float> logits = {1, 3, 2, /**/ 5, 5, 0, /**/ 5, 5, 0, /**/ -1, -2, -3};
  const std::vector<int32_t> targets = {1, 1, 0, 2};
  EXPECT_EQ(ops::ClassifierEvaluate(logits.data(), targets.data(), 4, 3).correct, 2);
}

TEST(Classifier, LargeLogitsDoNotOverflow) {
  std::vector<float> logits(11, -300.0f);
  logits[10] = 1000.0f;
  const std::vector<int32_t> targets = {10};
  EXPECT_EQ(ops::ClassifierForwardBackward(logits.data(), targets.data(), 1.0f, 1, 11), 0.0);
  for (float v : logits) EXPECT_EQ(v, 0.0f);
}

TEST(Classifier, NanInALogitGivesNanLoss) {
  for (int at : {0, 7, 8, 10}) {
    std::vector<float> logits(11, 0.0f);
    logits[at] = std::numeric_limits<float>::quiet_NaN();
    const std::vector<int32_t> targets = {3};
    EXPECT_TRUE(std::isnan(ops::ClassifierEvaluate(logits.data(), targets.data(), 1, 11).loss_sum));
    EXPECT_TRUE(
        std::isnan(ops::ClassifierForwardBackward(logits.data(), targets.data(), 1.0f, 1, 11)));
  }
}

}  // namespace
}  // namespace trainctl
