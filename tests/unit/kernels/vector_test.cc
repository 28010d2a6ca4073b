#include "kernels/vector.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace trainctl::ops {
namespace {

float Exp1(float x) { return Exp(Splat(x))[0]; }

TEST(Vector, ExpIsAccurateOverItsRange) {
  double worst = 0;
  for (int i = 0; i <= 2'000'000; ++i) {
    const float x = -87.0f + 175.7f * static_cast<float>(i) / 2e6f;
    const double want = std::exp(static_cast<double>(x));
    worst = std::max(worst, std::abs(Exp1(x) - want) / want);
  }
  RecordProperty("worst_relative_error", std::to_string(worst));
  EXPECT_LE(worst, 1.5e-7);
}

TEST(Vector, ExpOfExtremesIsZeroInfinityOrNan) {
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(Exp1(0.0f), 1.0f);
  EXPECT_EQ(Exp1(-88.0f), 0.0f);
  EXPECT_EQ(Exp1(-infinity), 0.0f);
  EXPECT_EQ(Exp1(89.0f), infinity);
  EXPECT_EQ(Exp1(infinity), infinity);
  EXPECT_TRUE(std::isnan(Exp1(std::numeric_limits<float>::quiet_NaN())));
}

TEST(Vector, ForVectorsCoversEveryElementOnce) {
  for (int64_t n : {0, 1, 7, 8, 9, 31}) {
    std::vector<float> x(static_cast<size_t>(n) + 1, 0.0f);
    ForVectors(n, [&](int64_t i, auto lanes) {
      Store(x.data() + i, Load(x.data() + i, lanes) + 1.0f, lanes);
    });
    for (int64_t i = 0; i < n; ++i) EXPECT_EQ(x[i], 1.0f);
    EXPECT_EQ(x[n], 0.0f);
  }
}

}  // namespace
}  // namespace trainctl::ops
