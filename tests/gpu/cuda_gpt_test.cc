// The model on a GPU beside the model on the CPU: the same seed, data and optimizer.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"
#include "runtime/trainer/gpt.h"
#include "runtime/trainer/gpu/gpu_gpt.h"
#include "runtime/trainer/gpu/gpu_replica.h"
#include "runtime/trainer/optimizer.h"
#include "tests/gpu/device_values.h"

namespace trainctl {
namespace {

constexpr int kSteps = 20;
constexpr double kLearningRate = 1e-3;

// A batch of each step, the same for every model.
struct Data {
  Data(const GptOptions& model, int64_t samples, bool repeat) {
    uint32_t x = 7;
    for (int s = 0; s < kSteps; ++s) {
      std::vector<int32_t> window;
      for (int64_t i = 0; i < samples * model.context; ++i) {
        // Tokens that follow from those before, mostly, so that there is something to learn.
        x = x * 1664525u + 1013904223u;
        const int32_t next = repeat || window.empty() ? 0 : window.back() + 1;
        window.push_back(static_cast<int32_t>((x >> 28) != 0 ? next % model.vocabulary
                                                             : (x >> 8) % model.vocabulary));
      }
      std::vector<int32_t> target(window.begin() + 1, window.end());
      target.push_back(0);
      tokens.push_back(std::move(window));
      targets.push_back(std::move(target));
      ids.emplace_back();
      for (int64_t i = 0; i < samples; ++i) ids.back().push_back(s * samples + i);
    }
  }
  Batch At(int step, const GptOptions& model, int64_t first, int64_t count) const {
    Batch batch;
    batch.count = count;
    batch.tokens = tokens[step].data() + first * model.context;
    batch.targets = targets[step].data() + first * model.context;
    batch.ids = ids[step].data() + first;
    return batch;
  }
  std::vector<std::vector<int32_t>> tokens, targets;
  std::vector<std::vector<int64_t>> ids;
};

// Parameters and the optimizer's arrays in the CPU's memory, as the training loop keeps them.
struct HostState {
  HostState(Gpt& gpt, const OptimizerOptions& options) : optimizer(options, gpt.parameters()) {
    std::vector<float*> parameters, gradients;
    for (const ParameterSpec& spec : gpt.parameters()) {
      values.emplace_back(static_cast<size_t>(spec.size()));
      sums.emplace_back(static_cast<size_t>(spec.size()));
    }
    for (size_t p = 0; p < values.size(); ++p) {
      parameters.push_back(values[p].data());
      gradients.push_back(sums[p].data());
      const ParameterSpec& spec = gpt.parameters()[p];
      state.push_back({spec.name, spec.shape, values[p].data(), spec.size()});
    }
    for (const OptimizerState& array : optimizer.state()) {
      const ParameterSpec& spec = gpt.parameters()[array.parameter];
      state.push_back({array.name, spec.shape, array.data, spec.size()});
    }
    gpt.Bind(parameters, gradients);
    gpt.Initialize(3);
    bound_parameters = parameters;
    bound_gradients = gradients;
  }
  std::vector<std::vector<float>> values, sums;
  std::vector<float*> bound_parameters, bound_gradients;
  Optimizer optimizer;
  std::vector<StateTensor> state;
};

struct Training {
  std::vector<double> losses;  // by step, mean of a target
  std::vector<std::vector<float>> state;
  EvaluateResult evaluated;
  int skipped = 0;  // steps
};

struct Setting {
  GptOptions model;
  Precision precision = Precision::kFp32;
  int64_t samples = 4, micro_batch = 4;
  double clip = 1;
  bool recompute = false;
  bool repeat = false;  // the data are one token, mostly
};

Training OnCpu(const Setting& setting) {
  Gpt gpt(setting.model);
  HostState host(gpt, {});
  const Data data(setting.model, setting.samples, setting.repeat);
  const double targets = static_cast<double>(setting.samples * setting.model.context);
  Training run;
  for (int step = 0; step < kSteps; ++step) {
    for (auto& sum : host.sums) std::fill(sum.begin(), sum.end(), 0.0f);
    const Batch batch = data.At(step, setting.model, 0, setting.samples);
    run.losses.push_back(gpt.ForwardBackward(batch, static_cast<float>(1 / targets),
                                             static_cast<uint64_t>(step), [](int) {}) /
                         targets);
    double squares = 0;
    for (const auto& sum : host.sums) {
      for (float g : sum) squares += static_cast<double>(g) * static_cast<double>(g);
    }
    const double scale = std::min(1.0, setting.clip / (std::sqrt(squares) + 1e-6));
    host.optimizer.Step(host.bound_parameters, host.bound_gradients, kLearningRate, scale, step);
  }
  run.evaluated = gpt.Evaluate(data.At(0, setting.model, 0, setting.samples));
  return run;
}

absl::StatusOr<std::unique_ptr<GpuReplica>> MakeReplica(const Setting& setting,
                                                        std::vector<ParameterSpec> specs) {
  return GpuReplica::Create({.precision = setting.precision,
                             .optimizer = {},
                             .clip = setting.clip,
                             .samples = setting.micro_batch,
                             .targets_per_sample = setting.model.context,
                             .bucket_plan = {}},
                            std::move(specs), [&](cuda::Dtype type, cuda::Linear* linear) {
                              return std::make_unique<GpuGpt>(
                                  GpuGptOptions{setting.model, type, setting.recompute}, linear);
                            });
}

absl::StatusOr<Training> OnGpu(const Setting& setting) {
  Gpt gpt(setting.model);
  HostState host(gpt, {});
  const Data data(setting.model, setting.samples, setting.repeat);
  const double targets = static_cast<double>(setting.samples * setting.model.context);
  ASSIGN_OR_RETURN(const auto replica, MakeReplica(setting, gpt.parameters()));
  RETURN_IF_ERROR(replica->Upload(host.state, {}));
  Training run;
  const auto take = [&]() -> absl::Status {
    ASSIGN_OR_RETURN(const StepResult result, replica->TakeResult());
    run.losses.push_back(result.loss_sum / targets);
    if (result.bad_tensor >= 0) ++run.skipped;
    return absl::OkStatus();
  };
  for (int step = 0; step < kSteps; ++step) {
    RETURN_IF_ERROR(replica->BeginStep(1));
    for (int64_t first = 0; first < setting.samples; first += setting.micro_batch) {
      RETURN_IF_ERROR(replica->Accumulate(data.At(step, setting.model, first, setting.micro_batch),
                                          static_cast<float>(1 / targets),
                                          static_cast<uint64_t>(step)));
    }
    if (replica->results_waiting() == 2) RETURN_IF_ERROR(take());
    RETURN_IF_ERROR(replica->Update(kLearningRate, {}));
  }
  while (replica->results_waiting() > 0) RETURN_IF_ERROR(take());
  ASSIGN_OR_RETURN(run.evaluated, replica->Evaluate(data.At(0, setting.model, 0, setting.samples)));
  RETURN_IF_ERROR(replica->Download(host.state));
  for (const StateTensor& tensor : host.state) {
    run.state.emplace_back(tensor.data, tensor.data + tensor.size);
  }
  return run;
}

class CudaGpt : public testing::Test {
 protected:
  void SetUp() override {
    if (const char* why = WhyNoGpu()) GTEST_SKIP() << why;
  }

  // Heads of 16, 32 and 64, a vocabulary that is no multiple of anything.
  static GptOptions Small(int64_t head_size) {
    return {.layers = 2, .width = 2 * head_size, .heads = 2, .context = 48, .vocabulary = 101};
  }

  // The largest relative difference of a loss.
  static double Difference(const Training& a, const Training& b) {
    double largest = 0;
    for (int s = 0; s < kSteps; ++s) {
      largest = std::max(largest, std::abs(a.losses[s] - b.losses[s]) / b.losses[s]);
    }
    return largest;
  }

  static void Near(const char* what, const Setting& setting, double limit) {
    const Training cpu = OnCpu(setting);
    const absl::StatusOr<Training> gpu = OnGpu(setting);
    ASSERT_TRUE(gpu.ok()) << what << ": " << gpu.status();
    const double difference = Difference(*gpu, cpu);
    std::printf("%s: first loss %.6f (CPU %.6f), last %.6f (CPU %.6f), largest difference %.2e\n",
                what, gpu->losses.front(), cpu.losses.front(), gpu->losses.back(),
                cpu.losses.back(), difference);
    EXPECT_LE(difference, limit) << what;
    EXPECT_LT(gpu->losses.back(), 0.9 * gpu->losses.front()) << what << ": has not learned";
    EXPECT_EQ(gpu->evaluated.count, cpu.evaluated.count);
    EXPECT_NEAR(gpu->evaluated.loss_sum / cpu.evaluated.loss_sum, 1, limit) << what;
    EXPECT_NEAR(static_cast<double>(gpu->evaluated.correct),
                static_cast<double>(cpu.evaluated.correct),
                setting.precision == Precision::kFp32 ? 2 : 12)
        << what;
  }
};

TEST_F(CudaGpt, TrainsInFloat32AsTheCpuDoes) {
  for (const int64_t size : {16, 32, 64}) {
    Near(absl::StrCat("fp32, heads of ", size).c_str(), {.model = Small(size)}, 1e-4);
  }
}

TEST_F(CudaGpt, TrainsInBfloat16WithinAPercentOfTheCpu) {
  for (const int64_t size : {16, 32, 64}) {
    Near(absl::StrCat("bf16, heads of ", size).c_str(),
         {.model = Small(size), .precision = Precision::kBf16}, 0.01);
  }
}

TEST_F(CudaGpt, TrainsInFloat16OnceItHasFoundALossScale) {
  const Setting setting = {.model = Small(64), .precision = Precision::kFp16};
  const absl::StatusOr<Training> gpu = OnGpu(setting);
  ASSERT_TRUE(gpu.ok()) << gpu.status();
  const Training cpu = OnCpu(setting);
  std::printf("fp16: %d of %d steps skipped, last loss %.4f\n", gpu->skipped, kSteps,
              gpu->losses.back());
  EXPECT_NEAR(gpu->losses.front() / cpu.losses.front(), 1, 0.01);
  EXPECT_LT(gpu->skipped, kSteps / 2);
  EXPECT_LT(gpu->losses.back(), 0.9 * gpu->losses.front());
}

TEST_F(CudaGpt, DropsOutWhatTheCpuDrops) {
  Setting setting = {.model = Small(32)};
  setting.model.dropout = 0.2;
  setting.model.seed = 5;
  Near("fp32, dropout", setting, 1e-4);
}

// One token in nearly every place, and a vocabulary without padding.
TEST_F(CudaGpt, LearnsFromTextThatRepeatsItself) {
  for (const Precision precision : {Precision::kFp32, Precision::kBf16}) {
    Setting setting = {.model = Small(64), .precision = precision, .samples = 8, .micro_batch = 8};
    setting.model.vocabulary = 256;
    setting.repeat = true;
    Near(precision == Precision::kFp32 ? "fp32, repeated" : "bf16, repeated", setting,
         precision == Precision::kFp32 ? 1e-4 : 0.01);
  }
}

TEST_F(CudaGpt, AccumulatesMicroBatches) {
  Near("fp32, micro-batches", {.model = Small(32), .micro_batch = 1}, 1e-4);
}

TEST_F(CudaGpt, GivesTheSameBitsInEveryRun) {
  for (const Precision precision : {Precision::kFp32, Precision::kBf16}) {
    const Setting setting = {.model = Small(64), .precision = precision};
    const absl::StatusOr<Training> first = OnGpu(setting), second = OnGpu(setting);
    ASSERT_TRUE(first.ok() && second.ok()) << first.status() << second.status();
    EXPECT_TRUE(first->state == second->state && first->losses == second->losses);
  }
}

TEST_F(CudaGpt, GivesTheSameBitsWhenItComputesActivationsASecondTime) {
  Setting setting = {.model = Small(64), .precision = Precision::kBf16};
  setting.model.dropout = 0.1;
  const absl::StatusOr<Training> kept = OnGpu(setting);
  setting.recompute = true;
  const absl::StatusOr<Training> again = OnGpu(setting);
  ASSERT_TRUE(kept.ok() && again.ok()) << kept.status() << again.status();
  EXPECT_TRUE(kept->state == again->state && kept->losses == again->losses);
}

TEST_F(CudaGpt, SkipsAStepWhoseGradientIsNotFinite) {
  const Setting setting = {.model = Small(32), .precision = Precision::kBf16};
  Gpt gpt(setting.model);
  HostState host(gpt, {});
  host.values[Gpt::Of(1, Gpt::kExpandBias)][0] = NAN;
  const Data data(setting.model, setting.samples, setting.repeat);
  auto replica = MakeReplica(setting, gpt.parameters());
  ASSERT_TRUE(replica.ok()) << replica.status();
  ASSERT_TRUE((*replica)->Upload(host.state, {}).ok());
  ASSERT_TRUE((*replica)->BeginStep(1).ok());
  ASSERT_TRUE((*replica)->Accumulate(data.At(0, setting.model, 0, 4), 1, 0).ok());
  ASSERT_TRUE((*replica)->Update(kLearningRate, {}).ok());
  const auto result = (*replica)->TakeResult();
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_GE(result->bad_tensor, 0);
  const std::vector<float> before = host.values[0];
  ASSERT_TRUE((*replica)->Download(host.state).ok());
  EXPECT_EQ(before, host.values[0]);
}

}  // namespace
}  // namespace trainctl
