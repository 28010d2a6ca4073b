#include "runtime/worker/clip.h"

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "gtest/gtest.h"

namespace trainctl {
namespace {

struct Gradients {
  std::vector<float> a, b;
  std::vector<absl::Span<float>> spans() { return {absl::MakeSpan(a), absl::MakeSpan(b)}; }
};

Gradients Random() {
  std::mt19937 random(5);
  std::normal_distribution<float> normal(0, 3);
  Gradients gradients{std::vector<float>(1003), std::vector<float>(77)};
  for (float& value : gradients.a) value = normal(random);
  for (float& value : gradients.b) value = normal(random);
  return gradients;
}

TEST(Clip, EqualsTheReference) {
  Gradients gradients = Random();
  const Gradients before = gradients;
  long double sum = 0;
  for (const float value : before.a) sum += static_cast<long double>(value) * value;
  for (const float value : before.b) sum += static_cast<long double>(value) * value;
  const double norm = static_cast<double>(std::sqrt(sum));

  EXPECT_NEAR(ClipByGlobalNorm(gradients.spans(), 1.5), norm, 1e-12 * norm);
  const float factor = static_cast<float>(1.5 / (norm + 1e-6));
  for (size_t i = 0; i < before.a.size(); ++i) EXPECT_EQ(gradients.a[i], before.a[i] * factor);
  for (size_t i = 0; i < before.b.size(); ++i) EXPECT_EQ(gradients.b[i], before.b[i] * factor);
  EXPECT_NEAR(GlobalNorm(gradients.spans()), 1.5, 1e-5);
}

TEST(Clip, LeavesShortGradientsAlone) {
  Gradients gradients = Random();
  const Gradients before = gradients;
  const double norm = ClipByGlobalNorm(gradients.spans(), 1e6);
  EXPECT_GT(norm, 1);
  EXPECT_EQ(gradients.a, before.a);
  EXPECT_EQ(gradients.b, before.b);
}

TEST(Clip, LeavesTheDecisionAboutInfiniteGradientsToTheCaller) {
  Gradients gradients = Random();
  gradients.a[500] = std::numeric_limits<float>::infinity();
  const Gradients before = gradients;
  EXPECT_FALSE(std::isfinite(ClipByGlobalNorm(gradients.spans(), 1.0)));
  EXPECT_EQ(gradients.a, before.a);
}

TEST(Clip, LargeValuesDoNotOverflow) {
  Gradients gradients{{3e30f, 4e30f}, {}};
  EXPECT_NEAR(GlobalNorm(gradients.spans()), 5e30, 1e25);
}

}  // namespace
}  // namespace trainctl
