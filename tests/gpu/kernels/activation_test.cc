// Operations of a model, against the references of the CPU's.
#include <utility>

#include "kernels/classifier_reference.h"
#include "kernels/cuda/bias.h"
#include "kernels/cuda/classifier.h"
#include "kernels/cuda/dropout.h"
#include "kernels/cuda/embedding.h"
#include "kernels/cuda/gelu.h"
#include "kernels/cuda/layer_norm.h"
#include "kernels/cuda/relu.h"
#include "kernels/dropout.h"
#include "kernels/gelu_reference.h"
#include "kernels/layer_norm_reference.h"
#include "kernels/relu_reference.h"
#include "tests/gpu/kernels/arrays.h"

namespace trainctl::cuda {
namespace {

struct Matrix {
  int64_t rows, width;
};
std::vector<Matrix> Matrices() {
  std::vector<Matrix> m = {{1, 1}, {3, 3}, {2, 127}, {7, 1023}, {33, 768}, {70, 64}};
  if (!Small()) m.insert(m.end(), {{1025, 768}, {5000, 40}, {37, 3072}, {131, 1600}, {2049, 255}});
  return m;
}
std::string Text(const Matrix& m, Dtype type) {
  return std::to_string(m.rows) + " x " + std::to_string(m.width) + " " + Name(type);
}
// Types of activations with those that parameter gradients may have beside them.
std::vector<std::pair<Dtype, Dtype>> Pairs() {
  return {{Dtype::kFloat32, Dtype::kFloat32},
          {Dtype::kBfloat16, Dtype::kBfloat16},
          {Dtype::kBfloat16, Dtype::kFloat32},
          {Dtype::kFloat16, Dtype::kFloat16}};
}

TEST(Gelu, IsTheReferencesForwardAndBackward) {
  for (const auto& [type, gradient] : Pairs()) {
    for (const Matrix& m : Matrices()) {
      SCOPED_TRACE(Text(m, type));
      const Numbers b = Normal(type, m.width), x = Normal(type, m.rows * m.width, 2);
      const Numbers dy = Normal(type, m.rows * m.width), db = Normal(gradient, m.width);
      Numbers y(x.size());
      Array gb(type, b);
      Numbers slope = x, product = dy, bias = db;
      reference::BiasGeluForward(b.data(), slope.data(), y.data(), m.rows, m.width);
      slope = Rounded(type, slope);
      reference::BiasGeluBackward(slope.data(), product.data(), bias.data(), m.rows, m.width);
      ExpectRepeatable([&] {
        Array gx(type, x), gy(type, m.rows * m.width), gdy(type, dy), gdb(gradient, db);
        Values<char> workspace(BiasWorkspace(m.rows, m.width));
        EXPECT_TRUE(
            BiasGeluForward(type, gb.data(), gx.data(), gy.data(), m.rows, m.width, nullptr).ok());
        ExpectClose(gy.Host(), y, type, "y");
        ExpectClose(gx.Host(), slope, type, "derivative");
        EXPECT_TRUE(BiasGeluBackward(type, gx.data(), gdy.data(), gradient, gdb.data(),
                                     workspace.get(), m.rows, m.width, nullptr)
                        .ok());
        ExpectClose(gdy.Host(), product, type, "dy");
        ExpectClose(gdb.Host(), bias, type, "db");
        Array alone(type, x);
        EXPECT_TRUE(
            BiasGeluForward(type, gb.data(), alone.data(), alone.data(), m.rows, m.width, nullptr)
                .ok());
        EXPECT_TRUE(alone.Read() == gy.Read()) << "in place";
        workspace.Read();
        return std::vector<std::string>{gx.Read(), gy.Read(), gdy.Read(), gdb.Read()};
      });
    }
  }
}

TEST(Relu, IsTheReferencesForwardAndBackward) {
  for (const auto& [type, gradient] : Pairs()) {
    for (const Matrix& m : Matrices()) {
      SCOPED_TRACE(Text(m, type));
      const Numbers b = Normal(type, m.width), x = Normal(type, m.rows * m.width);
      const Numbers dy = Normal(type, m.rows * m.width), db = Normal(gradient, m.width);
      Array gb(type, b);
      Numbers y = x, product = dy, bias = db;
      reference::BiasReluForward(b.data(), y.data(), m.rows, m.width);
      reference::BiasReluBackward(y.data(), 1.25, product.data(), bias.data(), m.rows, m.width);
      ExpectRepeatable([&] {
        Array gy(type, x), gdy(type, dy), gdb(gradient, db);
        Values<char> workspace(BiasWorkspace(m.rows, m.width));
        EXPECT_TRUE(BiasReluForward(type, gb.data(), gy.data(), m.rows, m.width, nullptr).ok());
        ExpectClose(gy.Host(), y, type, "y");
        EXPECT_TRUE(BiasReluBackward(type, gy.data(), 1.25f, gdy.data(), gradient, gdb.data(),
                                     workspace.get(), m.rows, m.width, nullptr)
                        .ok());
        ExpectClose(gdy.Host(), product, type, "dy");
        ExpectClose(gdb.Host(), bias, type, "db");
        workspace.Read();
        return std::vector<std::string>{gy.Read(), gdy.Read(), gdb.Read()};
      });
    }
  }
}

TEST(Bias, GradientIsTheSumOverRows) {
  for (const auto& [type, gradient] : Pairs()) {
    for (const Matrix& m : Matrices()) {
      SCOPED_TRACE(Text(m, type));
      const Numbers dy = Normal(type, m.rows * m.width), db = Normal(gradient, m.width);
      Array gdy(type, dy);
      Numbers wanted = db;
      for (size_t k = 0; k < dy.size(); ++k) wanted[k % db.size()] += dy[k];
      ExpectRepeatable([&] {
        Array gdb(gradient, db);
        Values<char> workspace(BiasWorkspace(m.rows, m.width));
        EXPECT_TRUE(BiasBackward(type, gdy.data(), gradient, gdb.data(), workspace.get(), m.rows,
                                 m.width, nullptr)
                        .ok());
        ExpectClose(gdb.Host(), wanted, type, "db");
        workspace.Read();
        return std::vector<std::string>{gdb.Read()};
      });
    }
  }
}

TEST(LayerNorm, IsTheReferencesForwardAndBackward) {
  for (const auto& [type, gradient] : Pairs()) {
    for (const Matrix& m : Matrices()) {
      if (m.width < 3) continue;  // the variance is zero
      SCOPED_TRACE(Text(m, type));
      const int64_t n = m.rows * m.width;
      const Numbers x = Normal(type, n, 2, 1), residual = Normal(type, n);
      const Numbers weight = Normal(type, m.width, 0.2, 1), bias = Normal(type, m.width);
      const Numbers dy = Normal(type, n), dx = Normal(type, n);
      const Numbers dw = Normal(gradient, m.width), db = Normal(gradient, m.width);
      Array gres(type, residual), gw(type, weight), gb(type, bias), gdy(type, dy);
      Numbers sum = x, y(x.size()), mean(static_cast<size_t>(m.rows)), inverse = mean;
      for (size_t i = 0; i < sum.size(); ++i) sum[i] += residual[i];
      sum = Rounded(type, sum);
      reference::ResidualNormForward(nullptr, weight.data(), bias.data(), sum.data(), y.data(),
                                     mean.data(), inverse.data(), m.rows, m.width);
      Numbers below = dx, first(dx.size()), dweight = dw, dbias = db, unused_w = dw, unused_b = db;
      reference::ResidualNormBackward(dy.data(), sum.data(), mean.data(), inverse.data(),
                                      weight.data(), below.data(), dweight.data(), dbias.data(),
                                      m.rows, m.width);
      reference::ResidualNormBackward(dy.data(), sum.data(), mean.data(), inverse.data(),
                                      weight.data(), first.data(), unused_w.data(), unused_b.data(),
                                      m.rows, m.width);
      ExpectRepeatable([&] {
        Array gx(type, x), gsum(type, n), gy(type, n), gmean(Dtype::kFloat32, m.rows);
        Array ginverse(Dtype::kFloat32, m.rows), gdx(type, dx), gfirst(type, n);
        Array gdw(gradient, dw), gdb(gradient, db), again_w(gradient, dw), again_b(gradient, db);
        Values<char> workspace(ResidualNormWorkspace(m.rows, m.width));
        EXPECT_TRUE(ResidualNormForward(type, gx.data(), gres.data(), gw.data(), gb.data(),
                                        gsum.data(), gy.data(), gmean.floats(), ginverse.floats(),
                                        m.rows, m.width, nullptr)
                        .ok());
        ExpectClose(gsum.Host(), sum, type, "sum");
        ExpectClose(gy.Host(), y, type, "y");
        ExpectClose(gmean.Host(), mean, 5e-6, "mean");
        ExpectClose(ginverse.Host(), inverse, 5e-6, "inverse deviation");
        EXPECT_TRUE(ResidualNormBackward(type, gdy.data(), gsum.data(), gmean.floats(),
                                         ginverse.floats(), gw.data(), false, gdx.data(), gradient,
                                         gdw.data(), gdb.data(), workspace.get(), m.rows, m.width,
                                         nullptr)
                        .ok());
        ExpectClose(gdx.Host(), below, type, "dx");
        ExpectClose(gdw.Host(), dweight, type, "dweight");
        ExpectClose(gdb.Host(), dbias, type, "dbias");
        EXPECT_TRUE(ResidualNormBackward(type, gdy.data(), gsum.data(), gmean.floats(),
                                         ginverse.floats(), gw.data(), true, gfirst.data(),
                                         gradient, again_w.data(), again_b.data(), workspace.get(),
                                         m.rows, m.width, nullptr)
                        .ok());
        ExpectClose(gfirst.Host(), first, type, "dx without one above");
        EXPECT_TRUE(again_w.Read() == gdw.Read());
        // Without a residual, and in place.
        Array plain(type, n);
        EXPECT_TRUE(ResidualNormForward(type, gsum.data(), nullptr, gw.data(), gb.data(), nullptr,
                                        plain.data(), gmean.floats(), ginverse.floats(), m.rows,
                                        m.width, nullptr)
                        .ok());
        EXPECT_TRUE(plain.Read() == gy.Read());
        workspace.Read();
        return std::vector<std::string>{gsum.Read(), gy.Read(), gdx.Read(), gdw.Read(), gdb.Read()};
      });
    }
  }
}

TEST(LayerNorm, RefusesRowsThatNoBlockHolds) {
  EXPECT_EQ(ResidualNormForward(Dtype::kFloat32, nullptr, nullptr, nullptr, nullptr, nullptr,
                                nullptr, nullptr, nullptr, 1, 1025, nullptr)
                .code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(Classifier, IsTheReferencesLossAndGradient) {
  struct Case {
    int64_t rows, classes, stride;
  };
  std::vector<Case> cases = {
      {1, 1, 1}, {3, 10, 10}, {5, 127, 128}, {9, 1023, 1032}, {2, 5001, 5001}};
  if (!Small()) cases.insert(cases.end(), {{40, 50257, 50304}, {64, 1000, 1000}});
  for (const Dtype type : Types()) {
    for (const Case& c : cases) {
      SCOPED_TRACE(Text({c.rows, c.classes}, type));
      const ClassifierShape shape{c.rows, c.classes, c.stride};
      Numbers logits = Normal(type, c.rows * c.stride, 3);
      // What padding holds must not matter.
      for (int64_t k = 0; k < c.rows * c.stride; ++k) {
        if (k % c.stride >= c.classes) logits[static_cast<size_t>(k)] = NAN;
      }
      const std::vector<int32_t> targets = Integers(c.rows, c.classes);
      const float scale = 1.0f / static_cast<float>(c.rows), loss_scale = 64;
      Numbers wanted(logits.size()), losses;
      double total = 0;
      for (int64_t r = 0; r < c.rows; ++r) {
        Numbers row(logits.begin() + r * c.stride, logits.begin() + r * c.stride + c.classes);
        losses.push_back(reference::ClassifierForwardBackward(row.data(), &targets[r],
                                                              scale * loss_scale, 1, c.classes));
        total += losses.back();
        std::copy(row.begin(), row.end(), wanted.begin() + r * c.stride);
      }
      Values<int32_t> gtargets(targets);
      Values<float> gscale(std::vector<float>{loss_scale});
      ExpectRepeatable([&] {
        Array x(type, logits), gl(Dtype::kFloat32, c.rows), el(Dtype::kFloat32, c.rows);
        Values<int32_t> correct(c.rows);
        Values<ClassifierTotals> totals(std::vector<ClassifierTotals>{{1000, 7}});
        EXPECT_TRUE(ClassifierEvaluate(type, x.data(), gtargets.get(), el.floats(), correct.get(),
                                       shape, nullptr)
                        .ok());
        EXPECT_TRUE(ClassifierForwardBackward(type, x.data(), gtargets.get(), scale, gscale.get(),
                                              gl.floats(), shape, nullptr)
                        .ok());
        EXPECT_TRUE(AddTotals(gl.floats(), correct.get(), c.rows, totals.get(), nullptr).ok());
        // Differences of numbers as large as logits: exact in comparison to those.
        const auto and_logits = [](Numbers x) {
          for (double& v : x) v += 3;
          return x;
        };
        ExpectClose(and_logits(gl.Host()), and_logits(losses), 5e-6, "losses");
        ExpectClose(and_logits(el.Host()), and_logits(losses), 5e-6, "losses of the evaluation");
        ExpectClose(x.Host(), wanted, type, "gradient");
        const ClassifierTotals sums = totals.Host()[0];
        ExpectClose({sums.loss_sum}, {1000 + total}, 5e-6 / 40, "sum of losses");
        int64_t right = 7;
        const std::vector<int32_t> each = correct.Host();
        for (int64_t r = 0; r < c.rows; ++r) {
          const double* row = logits.data() + r * c.stride;
          const int32_t best = static_cast<int32_t>(std::max_element(row, row + c.classes) - row);
          EXPECT_EQ(each[static_cast<size_t>(r)], best == targets[static_cast<size_t>(r)] ? 1 : 0)
              << r;
          right += best == targets[static_cast<size_t>(r)];
        }
        EXPECT_EQ(sums.correct, right);
        return std::vector<std::string>{x.Read(), gl.Read(), totals.Read()};
      });
    }
  }
}

TEST(Classifier, TurnsToNanWhereTheTargetIsNoClassOrALogitIsNan) {
  Values<int32_t> targets(std::vector<int32_t>{10, -1, 3, 3});
  Numbers logits = Normal(Dtype::kFloat32, 4 * 10);
  logits[25] = NAN;  // of row 2
  Array x(Dtype::kFloat32, logits);
  Values<float> losses(4);
  ASSERT_OK(ClassifierForwardBackward(Dtype::kFloat32, x.data(), targets.get(), 1, nullptr,
                                      losses.get(), {4, 10, 10}, nullptr));
  const std::vector<float> l = losses.Host();
  for (int r = 0; r < 3; ++r) EXPECT_TRUE(std::isnan(l[static_cast<size_t>(r)])) << r;
  EXPECT_TRUE(std::isfinite(l[3]));
  const Numbers d = x.Host();
  for (size_t i = 0; i < 30; ++i) EXPECT_TRUE(std::isnan(d[i])) << i;
  for (size_t i = 30; i < 40; ++i) EXPECT_TRUE(std::isfinite(d[i])) << i;
}

TEST(Dropout, HasTheBitsOfTheCpus) {
  for (const Matrix& m : Matrices()) {
    const ops::PhiloxKey key{{static_cast<uint32_t>(Random()()), 77}};
    std::vector<int64_t> ids;
    for (int64_t s = 0; s < m.rows; ++s) ids.push_back(static_cast<int64_t>(Random()() >> 2));
    Values<int64_t> gids(ids);
    for (const Dtype type : Types()) {
      SCOPED_TRACE(Text(m, type));
      const Numbers x = Normal(type, m.rows * m.width);
      Array gx(type, x), shifted(type, x, 1);
      std::vector<float> host(x.begin(), x.end());
      ops::Dropout(key, 0.3, ids.data(), host.data(), m.rows, m.width);
      Numbers wanted(host.begin(), host.end());
      wanted = Rounded(type, wanted);
      for (Array* a : {&gx, &shifted}) {
        ASSERT_OK(Dropout(type, key, 0.3, gids.get(), a->data(), m.rows, m.width, nullptr));
        EXPECT_TRUE(a->Host() == wanted);
      }
    }
  }
}

TEST(Embedding, IsTheReferencesForwardAndBackward) {
  struct Case {
    int64_t samples, context, width, vocabulary;
    bool one_token;
  };
  std::vector<Case> cases = {{1, 1, 1, 1, false},
                             {2, 3, 3, 5, false},
                             {3, 50, 127, 11, false},
                             {4, 40, 64, 1000, false},
                             {3, 100, 40, 50, true}};
  if (!Small()) cases.insert(cases.end(), {{4, 512, 768, 5003, false}, {3, 500, 1600, 30, false}});
  for (const auto& [type, gradient] : Pairs()) {
    for (const Case& c : cases) {
      SCOPED_TRACE(Text({c.samples * c.context, c.width}, type));
      const EmbeddingShape shape{c.samples, c.context, c.width, c.vocabulary};
      std::vector<int32_t> tokens = Integers(shape.rows(), c.vocabulary);
      if (c.one_token) std::fill(tokens.begin(), tokens.end(), 7);
      const Numbers token = Normal(type, c.vocabulary * c.width);
      const Numbers position = Normal(type, c.context * c.width);
      const Numbers dy = Normal(type, shape.rows() * c.width);
      const Numbers dtoken = Normal(gradient, c.vocabulary * c.width);
      const Numbers dposition = Normal(gradient, c.context * c.width);
      Array gt(type, token), gp(type, position), gdy(type, dy);
      Numbers y(dy.size()), wanted_t = dtoken, wanted_p = dposition;
      for (int64_t r = 0; r < shape.rows(); ++r) {
        const int64_t id = tokens[static_cast<size_t>(r)];
        for (int64_t i = 0; i < c.width; ++i) {
          const size_t at = static_cast<size_t>(r * c.width + i);
          const size_t t = static_cast<size_t>(id * c.width + i);
          const size_t p = static_cast<size_t>(r % c.context * c.width + i);
          y[at] = token[t] + position[p];
          wanted_t[t] += dy[at];
          wanted_p[p] += dy[at];
        }
      }
      Values<int32_t> gtokens(tokens);
      ExpectRepeatable([&] {
        Array gy(type, shape.rows() * c.width), gdt(gradient, dtoken), gdp(gradient, dposition);
        Values<char> workspace(EmbeddingWorkspace(shape));
        EXPECT_TRUE(
            EmbeddingForward(type, gtokens.get(), gt.data(), gp.data(), gy.data(), shape, nullptr)
                .ok());
        ExpectClose(gy.Host(), y, type, "y");
        const absl::Status status =
            EmbeddingBackward(type, gtokens.get(), gdy.data(), gradient, gdt.data(), gdp.data(),
                              workspace.get(), shape, nullptr);
        EXPECT_TRUE(status.ok()) << status.ToString();
        ExpectClose(gdt.Host(), wanted_t, type, "dtoken");
        ExpectClose(gdp.Host(), wanted_p, type, "dposition");
        workspace.Read();
        return std::vector<std::string>{gy.Read(), gdt.Read(), gdp.Read()};
      });
    }
  }
}

TEST(Embedding, ShowsTokensOutOfRangeAndLeavesThemOut) {
  const EmbeddingShape shape{1, 3, 8, 4};
  Values<int32_t> tokens(std::vector<int32_t>{4, 1, -5});
  const Numbers table = Normal(Dtype::kFloat32, 32), position = Normal(Dtype::kFloat32, 24);
  const Numbers zero(32);
  Array gt(Dtype::kFloat32, table), gp(Dtype::kFloat32, position), gy(Dtype::kFloat32, 24);
  ASSERT_OK(EmbeddingForward(Dtype::kFloat32, tokens.get(), gt.data(), gp.data(), gy.data(), shape,
                             nullptr));
  const Numbers y = gy.Host();
  for (size_t i = 0; i < 24; ++i) EXPECT_EQ(std::isnan(y[i]), i < 8 || i >= 16) << i;
  Array dy(Dtype::kFloat32, Numbers(24, 1.0)), dtoken(Dtype::kFloat32, zero);
  Values<char> workspace(EmbeddingWorkspace(shape));
  ASSERT_OK(EmbeddingBackward(Dtype::kFloat32, tokens.get(), dy.data(), Dtype::kFloat32,
                              dtoken.data(), nullptr, workspace.get(), shape, nullptr));
  const Numbers d = dtoken.Host();
  for (size_t i = 0; i < 32; ++i) EXPECT_EQ(d[i], i / 8 == 1 ? 1.0 : 0.0) << i;
}

}  // namespace
}  // namespace trainctl::cuda
