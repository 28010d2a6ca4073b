// Time of a training step of GPT-2 124M on this GPU: cuda_gpt_bench [SAMPLES [STEPS [PRECISION
// [RECOMPUTE]]]] with 1024 tokens a sample and a precision of bf16, fp16, tf32 or fp32.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "runtime/base/clock.h"
#include "runtime/base/status.h"
#include "runtime/trainer/gpt.h"
#include "runtime/trainer/gpu/gpu_gpt.h"
#include "runtime/trainer/gpu/gpu_replica.h"
#include "runtime/trainer/optimizer.h"

namespace trainctl {
namespace {

Precision PrecisionOf(const char* name) {
  if (std::strcmp(name, "fp32") == 0) return Precision::kFp32;
  if (std::strcmp(name, "tf32") == 0) return Precision::kTf32;
  if (std::strcmp(name, "fp16") == 0) return Precision::kFp16;
  return Precision::kBf16;
}

absl::Status Measure(int64_t samples, int steps, const char* precision, bool recompute) {
  const GptOptions model = {
      .layers = 12, .width = 768, .heads = 12, .context = 1024, .vocabulary = 50257};
  Gpt gpt(model);
  const OptimizerOptions adamw;
  Optimizer optimizer(adamw, gpt.parameters());
  std::vector<std::vector<float>> values;
  std::vector<float*> parameters;
  std::vector<StateTensor> state;
  for (const ParameterSpec& spec : gpt.parameters()) {
    values.emplace_back(static_cast<size_t>(spec.size()));
    parameters.push_back(values.back().data());
    state.push_back({spec.name, spec.shape, values.back().data(), spec.size()});
  }
  for (const OptimizerState& array : optimizer.state()) {
    const ParameterSpec& spec = gpt.parameters()[array.parameter];
    state.push_back({array.name, spec.shape, array.data, spec.size()});
  }
  gpt.Bind(parameters, parameters);
  gpt.Initialize(1);
  ASSIGN_OR_RETURN(
      const auto replica,
      GpuReplica::Create(
          {.precision = PrecisionOf(precision),
           .optimizer = adamw,
           .clip = 1,
           .samples = samples,
           .targets_per_sample = model.context,
           .bucket_plan = {}},
          gpt.parameters(), [&](cuda::Dtype type, cuda::Linear* linear) {
            return std::make_unique<GpuGpt>(GpuGptOptions{model, type, recompute}, linear);
          }));
  RETURN_IF_ERROR(replica->Upload(state, {}));
  const int64_t targets = samples * model.context;
  std::vector<int32_t> tokens(static_cast<size_t>(targets) + 1);
  uint32_t x = 1;
  for (int32_t& token : tokens) {
    x = x * 1664525u + 1013904223u;
    token = static_cast<int32_t>((x >> 8) % 50257);
  }
  std::vector<int64_t> ids(static_cast<size_t>(samples));
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int64_t>(i);
  Batch batch;
  batch.count = samples;
  batch.tokens = tokens.data();
  batch.targets = tokens.data() + 1;
  batch.ids = ids.data();
  std::vector<double> times;
  double loss = 0;
  Instant last = Now();
  for (int step = 0; step < steps; ++step) {
    RETURN_IF_ERROR(replica->BeginStep(1));
    RETURN_IF_ERROR(replica->Accumulate(batch, 1.0f / static_cast<float>(targets),
                                        static_cast<uint64_t>(step)));
    if (replica->results_waiting() == 2) {
      ASSIGN_OR_RETURN(const StepResult result, replica->TakeResult());
      loss = result.loss_sum / static_cast<double>(targets);
      const Instant now = Now();
      times.push_back(ToSeconds(now - last) * 1e3);
      last = now;
    }
    RETURN_IF_ERROR(replica->Update(3e-4, {}));
  }
  RETURN_IF_ERROR(replica->Download(state));
  size_t free = 0, total = 0;
  cudaMemGetInfo(&free, &total);
  if (times.empty()) return absl::OkStatus();
  std::sort(times.begin(), times.end());
  const double median = times[times.size() / 2];
  std::printf(
      "gpt2_124m %s B=%lld T=1024 recompute=%d step_ms=%.2f (least %.2f) tok/s=%.0f loss=%.4f "
      "memory_GiB=%.1f\n",
      precision, static_cast<long long>(samples), recompute, median, times.front(),
      static_cast<double>(targets) / median * 1e3, loss,
      static_cast<double>(total - free) / (1 << 30));
  return absl::OkStatus();
}

int Main(int argc, char** argv) {
  const int64_t samples = argc > 1 ? std::atoll(argv[1]) : 32;
  const int steps = argc > 2 ? std::atoi(argv[2]) : 40;
  const char* precision = argc > 3 ? argv[3] : "bf16";
  const absl::Status status =
      Measure(samples, steps, precision, argc > 4 && std::atoi(argv[4]) != 0);
  if (status.ok()) return 0;
  std::fprintf(stderr, "cuda_gpt_bench: %s\n", status.ToString().c_str());
  return 1;
}

}  // namespace
}  // namespace trainctl

int main(int argc, char** argv) { return trainctl::Main(argc, argv); }
