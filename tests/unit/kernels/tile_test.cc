#include "kernels/tile.h"

#include <gtest/gtest.h>

#include "tests/unit/kernels/compare.h"

namespace trainctl {
namespace {

struct Sizes {
  int64_t m, n, k;
};
const std::vector<Sizes> kSizes = {{1, 1, 1}, {2, 5, 3}, {5, 16, 9}, {6, 33, 17}, {6, 64, 40}};

std::vector<double> Product(const std::vector<float>& a, int64_t row, int64_t column,
                            const std::vector<float>& b, const Sizes& s) {
  std::vector<double> c(static_cast<size_t>(s.m * s.n), 0.0);
  for (int64_t i = 0; i < s.m; ++i) {
    for (int64_t j = 0; j < s.n; ++j) {
      for (int64_t p = 0; p < s.k; ++p) {
        c[i * s.n + j] += static_cast<double>(a[i * row + p * column]) * b[p * s.n + j];
      }
    }
  }
  return c;
}

TEST(Tile, MultipliesByPackedPanels) {
  for (const Sizes& s : kSizes) {
    const auto a = RandomArray(s.m * s.k, 1), b = RandomArray(s.k * s.n, 2);
    auto panels = Poisoned(ops::PanelFloats(s.k, s.n)), c = Poisoned(s.m * s.n);
    ops::PackPanels(b.data(), s.n, s.k, s.n, panels.data());
    ops::TileMultiply(a.data(), s.k, panels.data(), s.k, c.data(), s.n, s.m, s.n, s.k);
    EXPECT_LE(RelativeError(c, Product(a, s.k, 1, b, s)), kTolerance);
  }
}

TEST(Tile, PacksATransposeLikeTheMatrixItself) {
  for (const Sizes& s : kSizes) {
    const auto b = RandomArray(s.k * s.n, 2);
    auto transposed = b;
    for (int64_t p = 0; p < s.k; ++p) {
      for (int64_t j = 0; j < s.n; ++j) transposed[j * s.k + p] = b[p * s.n + j];
    }
    auto want = Poisoned(ops::PanelFloats(s.k, s.n)), got = want;
    ops::PackPanels(b.data(), s.n, s.k, s.n, want.data());
    ops::PackTransposedPanels(transposed.data(), s.k, s.k, s.n, got.data());
    EXPECT_EQ(got, want);
  }
}

TEST(Tile, MultipliesTheTransposeFromALaterRowAndAdds) {
  for (const Sizes& s : kSizes) {
    constexpr int64_t kSkipped = 2;  // rows of b before the first that is used
    const auto a = RandomArray(s.k * s.m, 1), b = RandomArray((s.k + kSkipped) * s.n, 2);
    const std::vector<float> used(b.begin() + kSkipped * s.n, b.end());
    auto panels = Poisoned(ops::PanelFloats(s.k + kSkipped, s.n)), c = Poisoned(s.m * s.n);
    ops::PackPanels(b.data(), s.n, s.k + kSkipped, s.n, panels.data());
    auto want = Product(a, 1, s.m, used, s);
    for (bool add : {false, true}) {
      ops::TileMultiplyTransposed(a.data(), s.m, panels.data() + kSkipped * ops::kPanel,
                                  s.k + kSkipped, add, c.data(), s.n, s.m, s.n, s.k);
      EXPECT_LE(RelativeError(c, want), kTolerance);
      for (double& v : want) v *= 2;
    }
  }
}

}  // namespace
}  // namespace trainctl
