// Operations on gradients and weights, against references in double.
#include <memory>
#include <numeric>

#include "kernels/adamw_reference.h"
#include "kernels/cuda/adamw.h"
#include "kernels/cuda/compress.h"
#include "kernels/cuda/digest.h"
#include "kernels/cuda/digest_reference.h"
#include "kernels/cuda/gradient_norm.h"
#include "kernels/cuda/pack.h"
#include "kernels/cuda/sgd.h"
#include "kernels/cuda/update_plan.h"
#include "tests/gpu/kernels/arrays.h"

namespace trainctl::cuda {
namespace {

// Tensors of all lengths, every second one not on a 16-byte boundary.
struct Tensors {
  Tensors(Dtype type, double deviation) {
    for (const int64_t n : Lengths()) {
      host.push_back(Normal(type, n, deviation));
      device.push_back(std::make_unique<Array>(type, host.back(), device.size() % 2));
    }
  }
  explicit Tensors(Dtype type) {
    for (const int64_t n : Lengths()) {
      device.push_back(std::make_unique<Array>(type, n, device.size() % 2));
    }
  }
  std::vector<std::string> Read() const {
    std::vector<std::string> bytes;
    for (const auto& array : device) bytes.push_back(array->Read());
    return bytes;
  }

  std::vector<Numbers> host;
  std::vector<std::unique_ptr<Array>> device;
};

TEST(Pack, CastsAndScalesThereAndBack) {
  for (const Dtype type : Types()) {
    for (const Dtype bucket_type : Types()) {
      for (const int64_t pad : {1, 8}) {
        SCOPED_TRACE(std::string(Name(type)) + " in " + Name(bucket_type));
        Tensors from(type, 1), to(type);
        std::vector<PackItem> items, back;
        int64_t end = pad;
        for (size_t t = 0; t < from.host.size(); ++t) {
          const int64_t n = static_cast<int64_t>(from.host[t].size());
          items.push_back({from.device[t]->data(), end, n});
          back.push_back({to.device[t]->data(), end, n});
          end = (end + n + pad - 1) / pad * pad;
        }
        Array bucket(bucket_type, end);
        Values<float> scale(std::vector<float>{0.5f});
        ASSERT_OK(Pack(items, type, bucket.data(), bucket_type, 0.75f, scale.get(), nullptr));
        ASSERT_OK(Unpack(back, type, bucket.data(), bucket_type, 8, nullptr, nullptr));
        const Numbers packed = bucket.Host();
        std::vector<bool> covered(packed.size());
        for (size_t t = 0; t < items.size(); ++t) {
          const Numbers unpacked = to.device[t]->Host();
          for (size_t i = 0; i < unpacked.size(); ++i) {
            const size_t at = static_cast<size_t>(items[t].offset) + i;
            covered[at] = true;
            const double wanted = Rounded(bucket_type, from.host[t][i] * 0.375);
            ASSERT_EQ(packed[at], wanted) << t << " " << i;
            ASSERT_EQ(unpacked[i], Rounded(type, wanted * 8)) << t << " " << i;
          }
        }
        for (size_t i = 0; i < packed.size(); ++i)
          ASSERT_EQ(covered[i], !std::isnan(packed[i])) << i;
      }
    }
  }
}

std::vector<GradientTensor> Gradients(const Tensors& tensors) {
  std::vector<GradientTensor> list;
  for (size_t t = 0; t < tensors.device.size(); ++t) {
    list.push_back({tensors.device[t]->data(), Lengths()[t]});
  }
  return list;
}

TEST(SumOfSquares, IsExactAndDoesNotOverflow) {
  for (const Dtype type : Types()) {
    for (const double deviation : {1e-3, 1.0, 3e19}) {
      if (type == Dtype::kFloat16 && deviation > 1) continue;
      SCOPED_TRACE(std::string(Name(type)) + " " + std::to_string(deviation));
      const Tensors g(type, deviation);
      double wanted = 0;
      for (const Numbers& x : g.host)
        wanted = std::inner_product(x.begin(), x.end(), x.begin(), wanted);
      const std::vector<GradientTensor> list = Gradients(g);
      ExpectRepeatable([&] {
        Values<char> workspace(SumOfSquaresWorkspace(list));
        Values<double> sum(1);
        Values<int32_t> bad(1);
        EXPECT_TRUE(SumOfSquares(list, type, workspace.get(), sum.get(), bad.get(), nullptr).ok());
        ExpectClose({sum.Host()[0]}, {wanted}, 1e-6, "sum");
        EXPECT_EQ(bad.Host()[0], kAllFinite);
        workspace.Read();
        return std::vector<std::string>{sum.Read()};
      });
    }
  }
}

TEST(SumOfSquares, NamesTheFirstTensorThatIsNotFinite) {
  for (const Dtype type : Types()) {
    for (const double value : {double{INFINITY}, double{-INFINITY}, double{NAN}}) {
      Tensors g(type, 1);
      const size_t last = g.host.size() - 1;
      for (const size_t t : {last, size_t{3}}) {
        Numbers x = g.host[t];
        x[x.size() - 1] = value;
        g.device[t] = std::make_unique<Array>(type, x, t % 2);
        const std::vector<GradientTensor> list = Gradients(g);
        Values<char> workspace(SumOfSquaresWorkspace(list));
        Values<double> sum(1);
        Values<int32_t> bad(1);
        ASSERT_OK(SumOfSquares(list, type, workspace.get(), sum.get(), bad.get(), nullptr));
        EXPECT_EQ(bad.Host()[0], static_cast<int32_t>(t));
        ASSERT_OK(Unscale(list, type, 1, nullptr, bad.get(), nullptr));
        EXPECT_EQ(bad.Host()[0], static_cast<int32_t>(t));
      }
    }
  }
}

TEST(Unscale, DividesByTheLossScale) {
  for (const Dtype type : Types()) {
    const Tensors g(type, 100);
    Values<float> scale(std::vector<float>{1024});
    Values<int32_t> bad(1);
    ASSERT_OK(Unscale(Gradients(g), type, 0.5f, scale.get(), bad.get(), nullptr));
    EXPECT_EQ(bad.Host()[0], kAllFinite);
    for (size_t t = 0; t < g.host.size(); ++t) {
      Numbers wanted = g.host[t];
      for (double& x : wanted) x = Rounded(type, x / 2048);
      EXPECT_TRUE(g.device[t]->Host() == wanted) << Name(type) << " " << t;
    }
  }
}

UpdatePlan PlanOf(const UpdateRule& rule, double sum, int32_t bad, float loss_scale,
                  UpdateCounts& counts) {
  Values<double> gsum(std::vector<double>{sum});
  Values<int32_t> gbad(std::vector<int32_t>{bad});
  Values<float> gscale(std::vector<float>{loss_scale});
  Values<UpdateCounts> gcounts(std::vector<UpdateCounts>{counts});
  Values<UpdatePlan> plan(1);
  EXPECT_TRUE(
      PlanUpdate(rule, gsum.get(), gbad.get(), gscale.get(), gcounts.get(), plan.get(), nullptr)
          .ok());
  counts = gcounts.Host()[0];
  return plan.Host()[0];
}

TEST(UpdatePlan, ClipsUnscalesAndSkips) {
  UpdateCounts counts = {.applied = 4, .skipped = 2, .skipped_in_a_row = 1};
  const UpdateRule rule = {.max_norm = 1, .gradient_scale = 0.5, .beta1 = 0.9, .beta2 = 0.95};
  UpdatePlan plan = PlanOf(rule, 400 * 64.0 * 64.0, kAllFinite, 64, counts);
  EXPECT_DOUBLE_EQ(plan.norm, 10);
  EXPECT_FLOAT_EQ(plan.gradient_scale, 0.5f / 64 * 0.1f);
  EXPECT_EQ(plan.bad_tensor, -1);
  EXPECT_EQ(plan.step, 5);
  EXPECT_DOUBLE_EQ(plan.first_correction, 1 / (1 - std::pow(0.9, 5)));
  EXPECT_DOUBLE_EQ(plan.second_root, std::sqrt(1 - std::pow(0.95, 5)));
  EXPECT_EQ(counts.applied, 5);
  EXPECT_EQ(counts.skipped_in_a_row, 0);
  plan = PlanOf(rule, 0.01, kAllFinite, 1, counts);
  EXPECT_FLOAT_EQ(plan.gradient_scale, 0.5f);
  plan = PlanOf(rule, NAN, 3, 64, counts);
  EXPECT_EQ(plan.bad_tensor, 3);
  plan = PlanOf(rule, INFINITY, kAllFinite, 64, counts);
  EXPECT_EQ(plan.bad_tensor, kAllFinite);
  EXPECT_EQ(counts.applied, 6);
  EXPECT_EQ(counts.skipped, 4);
  EXPECT_EQ(counts.skipped_in_a_row, 2);
}

TEST(LossScale, FallsToItsFloorAndGrows) {
  const LossScaleRule rule = {.growth_interval = 3, .floor = 128};
  const auto after = [&](LossScale state, int32_t bad_tensor, int steps) {
    UpdatePlan plan{};
    plan.bad_tensor = bad_tensor;
    Values<UpdatePlan> gplan(std::vector<UpdatePlan>{plan});
    Values<LossScale> gstate(std::vector<LossScale>{state});
    for (int i = 0; i < steps; ++i) {
      EXPECT_TRUE(UpdateLossScale(rule, gplan.get(), gstate.get(), nullptr).ok());
    }
    return gstate.Host()[0];
  };
  EXPECT_EQ(after({512, 1, 0}, 0, 1).scale, 256);
  EXPECT_EQ(after({512, 1, 0}, 0, 1).good_steps, 0);
  EXPECT_EQ(after({512, 0, 0}, 0, 4).scale, 128);
  EXPECT_EQ(after({512, 0, 0}, 0, 4).at_floor, 2);
  EXPECT_EQ(after({512, 0, 2}, -1, 2).scale, 512);
  EXPECT_EQ(after({512, 0, 2}, -1, 3).scale, 1024);
  EXPECT_EQ(after({512, 0, 2}, -1, 3).at_floor, 0);
  EXPECT_EQ(after({3e38f, 2, 0}, -1, 1).scale, 3e38f);
}

// Three steps of an optimizer on tensors of all lengths.
struct Update {
  Dtype copy_type;  // of no consequence without copies
  bool copies;
  Dtype gradient_type;
  bool stochastic;
};
std::vector<Update> Updates() {
  return {{Dtype::kFloat32, false, Dtype::kFloat32, false},
          {Dtype::kFloat32, false, Dtype::kBfloat16, false},
          {Dtype::kBfloat16, true, Dtype::kBfloat16, false},
          {Dtype::kBfloat16, true, Dtype::kBfloat16, true},
          {Dtype::kBfloat16, true, Dtype::kFloat32, true},
          {Dtype::kFloat16, true, Dtype::kFloat16, false}};
}

void ExpectCopies(const Tensors& master, const Tensors& copy, const Update& u, uint64_t seed,
                  int64_t step, const std::vector<int64_t>& first_index) {
  for (size_t t = 0; t < master.device.size(); ++t) {
    const Numbers p = master.device[t]->Host(), c = copy.device[t]->Host();
    for (size_t i = 0; i < p.size(); ++i) {
      double wanted = Rounded(u.copy_type, p[i]);
      if (u.stochastic) {
        const int64_t index = first_index[t] + static_cast<int64_t>(i);
        const float value = static_cast<float>(p[i]);
        uint32_t bits;
        std::memcpy(&bits, &value, 4);
        bits = static_cast<uint32_t>(
                   RoundStochastically(bits, RoundingWords(seed, step, index / 4).word[index % 4]))
               << 16;
        float rounded;
        std::memcpy(&rounded, &bits, 4);
        wanted = rounded;
      }
      ASSERT_EQ(c[i], wanted) << "copy of tensor " << t << " element " << i;
    }
  }
}

TEST(AdamW, IsTheReferencesAndWritesTheCopy) {
  const uint64_t seed = Random()();
  for (const Update& u : Updates()) {
    SCOPED_TRACE(std::string(u.copies ? Name(u.copy_type) : "no") + " copy, gradient " +
                 Name(u.gradient_type) + (u.stochastic ? ", stochastic" : ""));
    const Tensors weights(Dtype::kFloat32, 1);
    std::vector<Tensors> gradients;
    for (int s = 0; s < 3; ++s) gradients.emplace_back(u.gradient_type, 0.1);
    ExpectRepeatable([&] {
      Tensors p(Dtype::kFloat32), m(Dtype::kFloat32), v(Dtype::kFloat32), copy(u.copy_type);
      std::vector<Numbers> rp = weights.host, rm, rv;
      std::vector<int64_t> first_index;
      int64_t next = 0;
      for (size_t t = 0; t < rp.size(); ++t) {
        rm.emplace_back(rp[t].size());
        rv.emplace_back(rp[t].size());
        p.device[t] = std::make_unique<Array>(Dtype::kFloat32, rp[t], t % 2);
        m.device[t] = std::make_unique<Array>(Dtype::kFloat32, rm[t], t % 2);
        v.device[t] = std::make_unique<Array>(Dtype::kFloat32, rv[t], t % 2);
        first_index.push_back(next);
        next += (static_cast<int64_t>(rp[t].size()) + 7) / 8 * 8;
      }
      for (int64_t step = 1; step <= 3; ++step) {
        const Tensors& g = gradients[static_cast<size_t>(step - 1)];
        UpdateCounts counts = {.applied = step - 1, .skipped = 0, .skipped_in_a_row = 0};
        const UpdatePlan plan =
            PlanOf({.max_norm = 0.0, .gradient_scale = 0.7, .beta1 = 0.9, .beta2 = 0.95}, 1,
                   kAllFinite, 1, counts);
        Values<UpdatePlan> gplan(std::vector<UpdatePlan>{plan});
        std::vector<AdamWTensor> list;
        for (size_t t = 0; t < rp.size(); ++t) {
          const float decay = t % 3 == 0 ? 0.1f : 0.0f;
          list.push_back({p.device[t]->floats(), u.copies ? copy.device[t]->data() : nullptr,
                          g.device[t]->data(), m.device[t]->floats(), v.device[t]->floats(),
                          static_cast<int64_t>(rp[t].size()), first_index[t], decay});
          reference::AdamW({.learning_rate = 0.01,
                            .beta1 = 0.9,
                            .beta2 = 0.95,
                            .epsilon = 1e-8,
                            .weight_decay = decay,
                            .gradient_scale = 0.7,
                            .step = step},
                           rp[t].data(), g.host[t].data(), rm[t].data(), rv[t].data(),
                           static_cast<int64_t>(rp[t].size()));
        }
        const absl::Status status =
            AdamW({.learning_rate = 0.01, .beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8}, list,
                  u.copy_type, u.gradient_type, {u.stochastic, seed}, gplan.get(), nullptr);
        EXPECT_TRUE(status.ok()) << status.ToString();
        if (u.copies) ExpectCopies(p, copy, u, seed, step, first_index);
      }
      for (size_t t = 0; t < rp.size(); ++t) {
        ExpectClose(p.device[t]->Host(), rp[t], 5e-6, "weights " + std::to_string(t));
        ExpectClose(m.device[t]->Host(), rm[t], 5e-6, "first moments " + std::to_string(t));
        ExpectClose(v.device[t]->Host(), rv[t], 5e-6, "second moments " + std::to_string(t));
      }
      std::vector<std::string> bytes = p.Read();
      for (const Tensors* more : {&m, &v, &copy}) {
        for (std::string& b : more->Read()) bytes.push_back(std::move(b));
      }
      return bytes;
    });
  }
}

TEST(Sgd, IsTheReferencesAndWritesTheCopy) {
  const uint64_t seed = Random()();
  for (const Update& u : Updates()) {
    SCOPED_TRACE(std::string(u.copies ? Name(u.copy_type) : "no") + " copy, gradient " +
                 Name(u.gradient_type));
    const Tensors p(Dtype::kFloat32, 1), velocity(Dtype::kFloat32, 0.1), g(u.gradient_type, 0.1);
    const Tensors copy(u.copy_type);
    UpdatePlan plan{};
    plan.bad_tensor = -1;
    plan.gradient_scale = 0.5f;
    plan.step = 9;
    Values<UpdatePlan> gplan(std::vector<UpdatePlan>{plan});
    std::vector<SgdTensor> list;
    std::vector<int64_t> first_index;
    for (size_t t = 0; t < p.host.size(); ++t) {
      first_index.push_back(static_cast<int64_t>(t) << 40);
      list.push_back({p.device[t]->floats(), u.copies ? copy.device[t]->data() : nullptr,
                      g.device[t]->data(), velocity.device[t]->floats(),
                      static_cast<int64_t>(p.host[t].size()), first_index[t], 0.01f});
    }
    ASSERT_OK(Sgd({.learning_rate = 0.1, .momentum = 0.9}, list, u.copy_type, u.gradient_type,
                  {u.stochastic, seed}, gplan.get(), nullptr));
    for (size_t t = 0; t < p.host.size(); ++t) {
      Numbers v = velocity.host[t], w = p.host[t];
      for (size_t i = 0; i < v.size(); ++i) {
        v[i] = 0.9 * v[i] + 0.5 * g.host[t][i] + 0.01 * w[i];
        w[i] -= 0.1 * v[i];
      }
      ExpectClose(velocity.device[t]->Host(), v, 5e-6, "velocity");
      ExpectClose(p.device[t]->Host(), w, 5e-6, "weights");
    }
    if (u.copies) ExpectCopies(p, copy, u, seed, 9, first_index);
  }
}

TEST(AdamW, ChangesNothingWhenTheGradientIsNotFinite) {
  UpdatePlan plan{};
  plan.bad_tensor = 0;
  plan.step = 1;
  Values<UpdatePlan> gplan(std::vector<UpdatePlan>{plan});
  const Tensors p(Dtype::kFloat32, 1), m(Dtype::kFloat32, 1), v(Dtype::kFloat32, 1);
  const Tensors copy(Dtype::kBfloat16), g(Dtype::kBfloat16, 1);
  std::vector<AdamWTensor> list;
  for (size_t t = 0; t < p.host.size(); ++t) {
    list.push_back({p.device[t]->floats(), copy.device[t]->data(), g.device[t]->data(),
                    m.device[t]->floats(), v.device[t]->floats(), Lengths()[t], 0, 0});
  }
  const auto before = p.Read(), copy_before = copy.Read();
  ASSERT_OK(AdamW({0.1, 0.9, 0.99, 1e-8}, list, Dtype::kBfloat16, Dtype::kBfloat16, {}, gplan.get(),
                  nullptr));
  EXPECT_TRUE(p.Read() == before);
  EXPECT_TRUE(copy.Read() == copy_before);
}

TEST(StochasticRounding, KeepsTheMean) {
  // 1 + 1/4 of a step of bfloat16: three of four go down.
  const float value = 1 + 0.25f / 128;
  uint32_t bits;
  std::memcpy(&bits, &value, 4);
  int up = 0;
  for (int64_t group = 0; group < 10000; ++group) {
    const ops::PhiloxBlock words = RoundingWords(5, 1, group);
    for (const uint32_t word : words.word) up += RoundStochastically(bits, word) == 0x3F81;
  }
  EXPECT_NEAR(up, 10000, 400);
}

TEST(Digest, IsTheReferencesForEveryLengthAndPlace) {
  std::vector<std::unique_ptr<Guarded>> data;
  std::vector<DigestTensor> list;
  std::vector<uint64_t> wanted;
  for (const int64_t n : Lengths()) {
    for (const size_t shift : {size_t{0}, size_t{4}}) {
      std::string bytes(static_cast<size_t>(n), '\0');
      for (char& c : bytes) c = static_cast<char>(Random()());
      data.push_back(std::make_unique<Guarded>(bytes.size(), shift));
      data.back()->Write(bytes.data());
      list.push_back({data.back()->data(), n});
      wanted.push_back(reference::Digest(bytes.data(), n));
    }
  }
  list.push_back({nullptr, 0});
  wanted.push_back(0);
  Values<uint64_t> digests(static_cast<int64_t>(list.size()));
  ASSERT_OK(Digest(list, digests.get(), nullptr));
  EXPECT_TRUE(digests.Host() == wanted);
}

TEST(Compress, KeepsItsBoundAndCarriesTheError) {
  for (const Code code : {Code::kInt8, Code::kFp8}) {
    for (const Dtype type : Types()) {
      for (const int64_t n : Lengths()) {
        for (const int64_t shift : {0, 1}) {
          SCOPED_TRACE(std::string(code == Code::kInt8 ? "int8 " : "fp8 ") + Name(type) + " " +
                       std::to_string(n));
          const Numbers x = Normal(type, n), carried = Normal(Dtype::kFloat32, n, 0.01);
          Array gx(type, x, shift), error(Dtype::kFloat32, carried, shift);
          Values<char> parts(2 * CompressedBytes(n));
          char* second = parts.get() + CompressedBytes(n);
          ASSERT_OK(Compress(code, type, gx.data(), 0.5f, error.floats(), parts.get(), n, nullptr));
          ASSERT_OK(Compress(code, type, gx.data(), 1, nullptr, second, n, nullptr));
          Array one(Dtype::kFloat32, n, shift), both(type, n, shift);
          ASSERT_OK(
              DecompressSum(code, parts.get(), 1, 0, 1, Dtype::kFloat32, one.data(), n, nullptr));
          ASSERT_OK(DecompressSum(code, parts.get(), 2, CompressedBytes(n), 0.5f, type, both.data(),
                                  n, nullptr));
          const Numbers decoded = one.Host(), left = error.Host();
          Numbers wanted_both(x.size());
          Array other(Dtype::kFloat32, n);
          ASSERT_OK(
              DecompressSum(code, second, 1, 0, 1, Dtype::kFloat32, other.data(), n, nullptr));
          const Numbers decoded_other = other.Host();
          for (size_t begin = 0; begin < x.size(); begin += kCodeBlock) {
            const size_t end = std::min<size_t>(x.size(), begin + kCodeBlock);
            double largest = 0;
            for (size_t i = begin; i < end; ++i) {
              largest = std::max(largest, std::abs(x[i] * 0.5 + carried[i]));
            }
            for (size_t i = begin; i < end; ++i) {
              const double v = x[i] * 0.5 + carried[i];
              const double bound = code == Code::kInt8
                                       ? largest / 254
                                       : std::max(std::abs(v) / 16, largest / 448 / 1024);
              ASSERT_LE(std::abs(decoded[i] - v), bound * (1 + 1e-4)) << i << " of " << v;
              ASSERT_NEAR(left[i], v - decoded[i], 1e-6) << i;
              wanted_both[i] = 0.5 * (decoded[i] + decoded_other[i]);
            }
          }
          ExpectClose(both.Host(), wanted_both, type, "sum of two");
        }
      }
    }
  }
}

TEST(Compress, SendsNanForABlockThatIsNotFiniteAndKeepsItsError) {
  Numbers x = Normal(Dtype::kFloat32, 600), carried = Normal(Dtype::kFloat32, 600);
  x[300] = INFINITY;
  Array gx(Dtype::kFloat32, x), error(Dtype::kFloat32, carried), out(Dtype::kFloat32, 600);
  Values<char> code(CompressedBytes(600));
  ASSERT_OK(Compress(Code::kInt8, Dtype::kFloat32, gx.data(), 1, error.floats(), code.get(), 600,
                     nullptr));
  ASSERT_OK(
      DecompressSum(Code::kInt8, code.get(), 1, 0, 1, Dtype::kFloat32, out.data(), 600, nullptr));
  const Numbers decoded = out.Host(), left = error.Host();
  for (size_t i = 0; i < 600; ++i) {
    const bool bad = i / 256 == 1;
    EXPECT_EQ(std::isnan(decoded[i]), bad) << i;
    if (bad) {
      EXPECT_EQ(left[i], carried[i]) << i;
    }
  }
}

}  // namespace
}  // namespace trainctl::cuda
