#include "kernels/cuda/attention.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/attention_reference.h"
#include "tests/gpu/device_values.h"
#include "tests/unit/kernels/compare.h"

namespace trainctl {
namespace {

using cuda::Dtype;

struct Case {
  Dtype type;
  ops::AttentionShape shape;
};

std::string Name(const Case& c) {
  return absl::StrCat("type ", static_cast<int>(c.type), " samples ", c.shape.samples, " context ",
                      c.shape.context, " heads ", c.shape.heads, " of ", c.shape.head_size);
}

// The columns of q, k or v (part 0, 1, 2) in [rows, 3 width].
template <typename T>
std::vector<T> Part(const std::vector<T>& all, int64_t width, int part) {
  std::vector<T> out;
  for (size_t i = 0; i < all.size(); ++i) {
    if (static_cast<int64_t>(i) / width % 3 == part) out.push_back(all[i]);
  }
  return out;
}

struct Outputs {
  std::vector<float> y, dqkv;
};

class CudaAttention : public testing::Test {
 protected:
  void SetUp() override {
    if (const char* why = WhyNoGpu()) GTEST_SKIP() << why;
  }

  static Outputs Run(const Case& c, const DeviceValues& qkv, const DeviceValues& dy) {
    const int64_t rows = c.shape.samples * c.shape.context;
    DeviceValues y(c.type, rows * c.shape.width()), dqkv(c.type, rows * 3 * c.shape.width());
    DeviceValues log_sums(Dtype::kFloat32, rows * c.shape.heads);
    DeviceValues dots(Dtype::kFloat32, rows * c.shape.heads);
    const absl::Status forward =
        cuda::AttentionForward(c.type, c.shape, qkv.data(), y.data(), log_sums.floats(), nullptr);
    EXPECT_TRUE(forward.ok()) << forward;
    const absl::Status backward =
        cuda::AttentionBackward(c.type, c.shape, dy.data(), qkv.data(), y.data(), log_sums.floats(),
                                dqkv.data(), dots.floats(), nullptr);
    EXPECT_TRUE(backward.ok()) << backward;
    return {y.Read(), dqkv.Read()};
  }

  static void Compare(const Case& c, uint32_t seed) {
    const int64_t rows = c.shape.samples * c.shape.context, width = c.shape.width();
    const double limit = c.type == Dtype::kFloat32 ? kTolerance : 5e-3;
    const DeviceValues qkv(c.type, RandomArray(rows * 3 * width, seed));
    const DeviceValues dy(c.type, RandomArray(rows * width, seed + 1));
    const Outputs got = Run(c, qkv, dy);
    const std::vector<double> qkv_values = Double(qkv.Read()), dy_values = Double(dy.Read());
    std::vector<double> y(dy_values.size()), dqkv(qkv_values.size());
    reference::AttentionForward(c.shape, qkv_values.data(), y.data());
    reference::AttentionBackward(c.shape, dy_values.data(), qkv_values.data(), dqkv.data());
    const double forward = RelativeError(got.y, y);
    EXPECT_LE(forward, limit) << Name(c);
    for (int part = 0; part < 3; ++part) {
      const double error = RelativeError(Part(got.dqkv, width, part), Part(dqkv, width, part));
      // Where a position sees itself alone, the gradients of q and k are zero: a difference of
      // equal numbers, of which the rounding is left.
      EXPECT_LE(error, c.shape.context == 1 && part < 2 ? 1e-4 : limit)
          << Name(c) << ", gradient of "
          << "qkv"[part];
    }
    const Outputs again = Run(c, qkv, dy);
    EXPECT_TRUE(again.y == got.y && again.dqkv == got.dqkv) << Name(c) << ": not the same twice";
  }
};

TEST_F(CudaAttention, IsRightOnTensorCores) {
  uint32_t seed = 1;
  for (const int64_t size : {64, 32, 128}) {
    for (const int64_t context : {1, 17, 64, 65, 127, 128, 200, 333}) {
      Compare({Dtype::kBfloat16, {2, context, 3, size}}, seed += 2);
    }
    Compare({Dtype::kFloat16, {1, 130, 2, size}}, seed += 2);
  }
}

TEST_F(CudaAttention, IsRightInFloat32) {
  uint32_t seed = 100;
  for (const int64_t size : {64, 32, 8, 128, 20}) {
    for (const int64_t context : {1, 31, 32, 65, 150}) {
      Compare({Dtype::kFloat32, {2, context, 3, size}}, seed += 2);
    }
  }
}

TEST_F(CudaAttention, IsRightForHeadsOfAnyOtherSize) {
  Compare({Dtype::kBfloat16, {2, 70, 3, 80}}, 200);
  Compare({Dtype::kFloat16, {2, 70, 3, 24}}, 202);
}

TEST_F(CudaAttention, IsRightForALongContext) {
  Compare({Dtype::kBfloat16, {1, 1024, 1, 64}}, 300);
}

TEST_F(CudaAttention, LetsNotANumberThrough) {
  const Case c = {Dtype::kBfloat16, {1, 100, 1, 64}};
  std::vector<float> values = RandomArray(100 * 3 * 64, 1);
  values[50 * 3 * 64 + 3] = NAN;  // q at position 50
  const DeviceValues qkv(c.type, values), dy(c.type, RandomArray(100 * 64, 2));
  const Outputs got = Run(c, qkv, dy);
  for (int64_t t = 0; t < 100; ++t) {
    EXPECT_EQ(std::isnan(got.y[static_cast<size_t>(t * 64)]), t == 50) << t;
  }
}

TEST_F(CudaAttention, RefusesHeadsThatAreTooLarge) {
  const ops::AttentionShape shape = {1, 16, 1, 256};
  const absl::Status refused =
      cuda::AttentionForward(Dtype::kBfloat16, shape, nullptr, nullptr, nullptr, nullptr);
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument) << refused;
}

}  // namespace
}  // namespace trainctl
