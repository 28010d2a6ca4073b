#include <gtest/gtest.h>

#include "kernels/adamw.h"
#include "kernels/adamw_reference.h"
#include "kernels/sgd.h"
#include "tests/unit/kernels/compare.h"

namespace trainctl {
namespace {

TEST(AdamW, MatchesReferenceOverManySteps) {
  constexpr int64_t kSize = 133;
  auto p = RandomArray(kSize, 1);
  std::vector<float> m(kSize), v(kSize);
  auto want_p = Double(p), want_m = Double(m), want_v = Double(v);
  for (int64_t step = 1; step <= 50; ++step) {
    const auto g = RandomArray(kSize, 100 + static_cast<uint32_t>(step));
    const auto want_g = Double(g);
    const ops::AdamWStep s = {.learning_rate = 1e-2,
                              .beta1 = 0.9,
                              .beta2 = 0.999,
                              .epsilon = 1e-8,
                              .weight_decay = 0.1,
                              .gradient_scale = 0.7,
                              .step = step};
    ops::AdamW(s, p.data(), g.data(), m.data(), v.data(), kSize);
    reference::AdamW(s, want_p.data(), want_g.data(), want_m.data(), want_v.data(), kSize);
  }
  EXPECT_LE(RelativeError(p, want_p), kTolerance);
  EXPECT_LE(RelativeError(m, want_m), kTolerance);
  EXPECT_LE(RelativeError(v, want_v), kTolerance);
}

TEST(Sgd, MatchesReferenceOverManySteps) {
  constexpr int64_t kSize = 133;
  auto p = RandomArray(kSize, 1);
  std::vector<float> velocity(kSize);
  auto want_p = Double(p), want_velocity = Double(velocity);
  for (uint32_t step = 0; step < 50; ++step) {
    const auto g = RandomArray(kSize, 100 + step);
    for (int64_t i = 0; i < kSize; ++i) {
      const double gradient = g[i] * 0.7 + 0.1 * want_p[i];
      want_velocity[i] = 0.9 * want_velocity[i] + gradient;
      want_p[i] -= 1e-2 * want_velocity[i];
    }
    const ops::SgdStep s = {
        .learning_rate = 1e-2, .momentum = 0.9, .weight_decay = 0.1, .gradient_scale = 0.7};
    ops::Sgd(s, p.data(), g.data(), velocity.data(), kSize);
  }
  EXPECT_LE(RelativeError(p, want_p), kTolerance);
  EXPECT_LE(RelativeError(velocity, want_velocity), kTolerance);
}

}  // namespace
}  // namespace trainctl
