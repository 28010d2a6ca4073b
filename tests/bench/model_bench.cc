// Training throughput of one worker without communication: forward, backward and optimizer.
// model_peer.py is the same in PyTorch. Both count processor time, so that other work on the
// machine does not count, and give the best of several windows.
//
//   model_bench --model mlp [--batch 128] [--hidden 512,256]
//   model_bench --model gpt [--batch 8] [--layers 4] [--width 128] [--heads 4] [--context 128]

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "kernels/compute_thread.h"
#include "runtime/base/flags.h"
#include "runtime/trainer/gpt.h"
#include "runtime/trainer/mlp.h"
#include "runtime/trainer/optimizer.h"

namespace trainctl {
namespace {

struct Setup {
  std::string model;
  int64_t batch = 0;
  std::vector<int64_t> hidden;
  GptOptions gpt;
  double dropout = 0;
  double seconds = 0.5;
  int windows = 6;
};

struct Data {
  std::vector<float> features;
  std::vector<int32_t> tokens, targets;
  std::vector<int64_t> ids;
  Batch batch;
  int64_t losses = 0;  // samples or tokens
};

Data RandomData(int64_t samples, int64_t features, int64_t tokens, int32_t classes) {
  std::mt19937 engine(1);
  std::uniform_real_distribution<float> uniform;
  std::uniform_int_distribution<int32_t> label(0, classes - 1);
  Data d;
  for (int64_t i = 0; i < samples * features; ++i) d.features.push_back(uniform(engine));
  for (int64_t i = 0; i < samples * tokens; ++i) d.tokens.push_back(label(engine));
  d.losses = samples * std::max<int64_t>(tokens, 1);
  for (int64_t i = 0; i < d.losses; ++i) d.targets.push_back(label(engine));
  for (int64_t i = 0; i < samples; ++i) d.ids.push_back(i);
  d.batch = {.count = samples,
             .features = d.features.data(),
             .tokens = d.tokens.data(),
             .targets = d.targets.data(),
             .ids = d.ids.data()};
  return d;
}

double ProcessSeconds() {
  timespec now;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

double SamplesPerSecond(Model& model, const Data& data, const Setup& setup) {
  std::vector<std::vector<float>> parameters, gradients;
  std::vector<float*> p, g;
  for (const ParameterSpec& spec : model.parameters()) {
    p.push_back(parameters.emplace_back(static_cast<size_t>(spec.size())).data());
    g.push_back(gradients.emplace_back(static_cast<size_t>(spec.size())).data());
  }
  model.Bind(p, g);
  model.Initialize(1);
  Optimizer optimizer({.kind = OptimizerOptions::Kind::kAdamW}, model.parameters());
  int64_t step = 0;
  const auto one_step = [&] {
    for (auto& gradient : gradients) std::fill(gradient.begin(), gradient.end(), 0.0f);
    model.ForwardBackward(data.batch, 1.0f / static_cast<float>(data.losses),
                          static_cast<uint64_t>(step), [](int) {});
    optimizer.Step(p, g, 1e-3, 1, step++);
  };
  for (int i = 0; i < 3; ++i) one_step();
  double best = 1e9;
  for (int w = 0; w < setup.windows; ++w) {
    const double start = ProcessSeconds();
    double elapsed = 0;
    int64_t steps = 0;
    while (elapsed < setup.seconds) {
      one_step();
      ++steps;
      elapsed = ProcessSeconds() - start;
    }
    best = std::min(best, elapsed / static_cast<double>(steps));
  }
  return static_cast<double>(data.batch.count) / best;
}

int Main(int argc, char** argv) {
  constexpr Flags::Range kSizes = {1, 1'000'000};
  Setup setup;
  std::string hidden = "512,256";
  Flags flags("model_bench", "Training throughput of one worker without communication");
  flags.AddChoice("--model", &setup.model, {"mlp", "gpt"}, "which");
  flags.Require("--model");
  flags.Add("--batch", &setup.batch, {0, 1'000'000}, "samples; 0: as the example");
  flags.Add("--hidden", &hidden, "N,…", "widths of the layers (mlp)");
  flags.Add("--layers", &setup.gpt.layers, kSizes, "gpt");
  flags.Add("--width", &setup.gpt.width, kSizes, "gpt");
  flags.Add("--heads", &setup.gpt.heads, kSizes, "gpt");
  flags.Add("--context", &setup.gpt.context, kSizes, "gpt");
  flags.Add("--vocabulary", &setup.gpt.vocabulary, kSizes, "gpt");
  flags.Add("--dropout", &setup.dropout, "share of what is dropped");
  flags.Add("--seconds", &setup.seconds, "processor time of a window");
  flags.Add("--windows", &setup.windows, {1, 1000}, "of which the best counts");
  if (const std::optional<int> ended = flags.Parse(argc, argv)) return *ended;
  for (const absl::string_view width : absl::StrSplit(hidden, ',')) {
    if (!absl::SimpleAtoi(width, &setup.hidden.emplace_back())) return 2;
  }
  ops::PrepareComputeThread();
  std::unique_ptr<Model> model;
  Data data;
  if (setup.model == "mlp") {
    model = std::make_unique<Mlp>(
        MlpOptions{.inputs = 784, .hidden = setup.hidden, .classes = 10, .dropout = setup.dropout});
    data = RandomData(setup.batch > 0 ? setup.batch : 128, 784, 0, 10);
  } else {
    setup.gpt.dropout = setup.dropout;
    model = std::make_unique<Gpt>(setup.gpt);
    data = RandomData(setup.batch > 0 ? setup.batch : 8, 0, setup.gpt.context,
                      static_cast<int32_t>(setup.gpt.vocabulary));
  }
  std::printf("%s %.1f samples/s\n", setup.model.c_str(), SamplesPerSecond(*model, data, setup));
  return 0;
}

}  // namespace
}  // namespace trainctl

int main(int argc, char** argv) { return trainctl::Main(argc, argv); }
