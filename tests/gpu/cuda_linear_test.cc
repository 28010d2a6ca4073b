#include "kernels/cuda/linear.h"

#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <vector>

#include "tests/gpu/device_values.h"
#include "tests/unit/kernels/compare.h"

namespace trainctl {
namespace {

using cuda::Dtype;
using cuda::LinearShape;

constexpr int64_t kWorkspaceBytes = 32 << 20;

double Gelu(double x) {
  return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}
double GeluSlope(double x) {
  const double c = std::sqrt(2 / M_PI), t = std::tanh(c * (x + 0.044715 * x * x * x));
  return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * c * (1 + 3 * 0.044715 * x * x);
}

class CudaLinear : public testing::Test {
 protected:
  void SetUp() override {
    if (const char* why = WhyNoGpu()) GTEST_SKIP() << why;
    workspace_ = std::make_unique<DeviceValues>(Dtype::kFloat32, kWorkspaceBytes / 4);
    auto opened = cuda::Linear::Open(
        {.workspace = workspace_->data(), .workspace_bytes = static_cast<size_t>(kWorkspaceBytes)});
    ASSERT_TRUE(opened.ok()) << opened.status();
    linear_ = *std::move(opened);
  }

  static double Limit(Dtype type) { return type == Dtype::kFloat32 ? kTolerance : 5e-3; }
  static void Near(Dtype type, const DeviceValues& got, const std::vector<double>& want,
                   const char* what) {
    EXPECT_LE(RelativeError(got.Read(), want), Limit(type))
        << what << ", type " << static_cast<int>(type);
  }

  // All operations of one shape against plain loops in double.
  void Compare(Dtype type, const LinearShape& s, uint32_t seed) {
    const DeviceValues x(type, RandomArray(s.rows * s.in, seed)),
        w(type, RandomArray(s.out * s.in, seed + 1, 0.1f)), b(type, RandomArray(s.out, seed + 2)),
        dy(type, RandomArray(s.rows * s.out, seed + 3)),
        pre(type, RandomArray(s.rows * s.in, seed + 4)),
        dw(Dtype::kFloat32, RandomArray(s.out * s.in, seed + 5));
    const auto xs = Double(x.Read()), ws = Double(w.Read()), bs = Double(b.Read()),
               dys = Double(dy.Read()), pres = Double(pre.Read()), dws = Double(dw.Read());
    std::vector<double> product(static_cast<size_t>(s.rows * s.out)), biased(product),
        dx(static_cast<size_t>(s.rows * s.in), 0.0), weight(ws.size(), 0.0);
    for (int64_t r = 0; r < s.rows; ++r) {
      for (int64_t o = 0; o < s.out; ++o) {
        double sum = 0;
        const double d = dys[r * s.out + o];
        for (int64_t i = 0; i < s.in; ++i) {
          sum += xs[r * s.in + i] * ws[o * s.in + i];
          dx[r * s.in + i] += d * ws[o * s.in + i];
          weight[o * s.in + i] += d * xs[r * s.in + i];
        }
        product[r * s.out + o] = sum;
        biased[r * s.out + o] = sum + bs[o];
      }
    }
    DeviceValues y(type, s.rows * s.out), z(type, s.rows * s.out), got_dx(type, s.rows * s.in),
        got_dw(Dtype::kFloat32, s.out * s.in);
    Ok(linear_->Forward(type, s, x.data(), w.data(), nullptr, y.data(), nullptr));
    Near(type, y, product, "product");
    Ok(linear_->Forward(type, s, x.data(), w.data(), b.data(), y.data(), nullptr));
    Near(type, y, biased, "product and bias");
    Ok(linear_->BackwardInput(type, s, dy.data(), w.data(), got_dx.data(), nullptr));
    Near(type, got_dx, dx, "gradient of the input");
    Ok(linear_->BackwardWeight(type, s, dy.data(), x.data(), Dtype::kFloat32, got_dw.data(), false,
                               nullptr));
    Near(Dtype::kFloat32, got_dw, weight, "gradient of the weight");
    Ok(linear_->BackwardWeight(type, s, dy.data(), x.data(), Dtype::kFloat32, dw.data(), true,
                               nullptr));
    std::vector<double> sum = weight;
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += dws[i];
    Near(Dtype::kFloat32, dw, sum, "sum of gradients of the weight");
    if (type == Dtype::kFloat32) return;
    Ok(linear_->GeluForward(type, s, x.data(), w.data(), b.data(), z.data(), y.data(), nullptr));
    Near(type, z, biased, "before gelu");
    for (double& v : biased) v = Gelu(v);
    Near(type, y, biased, "after gelu");
    Ok(linear_->GeluBackwardInput(type, s, dy.data(), w.data(), pre.data(), got_dx.data(),
                                  nullptr));
    for (size_t i = 0; i < dx.size(); ++i) dx[i] *= GeluSlope(pres[i]);
    Near(type, got_dx, dx, "gradient through gelu");
  }

  static void Ok(const absl::Status& status) { EXPECT_TRUE(status.ok()) << status; }

  std::unique_ptr<DeviceValues> workspace_;
  std::unique_ptr<cuda::Linear> linear_;
};

TEST_F(CudaLinear, IsRightInFloat32) {
  Compare(Dtype::kFloat32, {33, 17, 45}, 1);
  Compare(Dtype::kFloat32, {200, 128, 384}, 11);
  Compare(Dtype::kFloat32, {1, 5, 3}, 21);
}

TEST_F(CudaLinear, IsRightIn16Bits) {
  for (const Dtype type : {Dtype::kBfloat16, Dtype::kFloat16}) {
    Compare(type, {200, 128, 384}, 31);
    Compare(type, {77, 96, 200}, 41);
    Compare(type, {1, 64, 8}, 51);
  }
}

TEST_F(CudaLinear, GivesTheSameBitsTwice) {
  const LinearShape s = {4096, 768, 768};
  const DeviceValues x(Dtype::kBfloat16, RandomArray(s.rows * s.in, 1)),
      dy(Dtype::kBfloat16, RandomArray(s.rows * s.out, 2));
  DeviceValues a(Dtype::kFloat32, s.in * s.out), b(Dtype::kFloat32, s.in * s.out);
  for (DeviceValues* to : {&a, &b}) {
    Ok(linear_->BackwardWeight(Dtype::kBfloat16, s, dy.data(), x.data(), Dtype::kFloat32,
                               to->data(), false, nullptr));
  }
  EXPECT_TRUE(a.Read() == b.Read());
}

}  // namespace
}  // namespace trainctl
