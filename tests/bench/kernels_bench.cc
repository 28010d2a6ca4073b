// Speed of the GPU's operations beside the rate of a copy in the same run, as the table of
// kernels/README.md.
//   kernels_bench
// Exit status: 0, or 77 without a GPU.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "kernels/cuda/adamw.h"
#include "kernels/cuda/bias.h"
#include "kernels/cuda/classifier.h"
#include "kernels/cuda/compress.h"
#include "kernels/cuda/digest.h"
#include "kernels/cuda/dropout.h"
#include "kernels/cuda/embedding.h"
#include "kernels/cuda/gelu.h"
#include "kernels/cuda/gradient_norm.h"
#include "kernels/cuda/layer_norm.h"
#include "kernels/cuda/pack.h"
#include "kernels/cuda/relu.h"
#include "kernels/cuda/sgd.h"

namespace trainctl::cuda {
namespace {

void Check(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "kernels_bench: %s: %s\n", what, cudaGetErrorString(error));
  std::exit(1);
}
void Check(const absl::Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "kernels_bench: %s\n", status.ToString().c_str());
  std::exit(1);
}

cudaStream_t stream;

// Memory that is never freed, of small random float32 or of the given values.
template <typename T = void>
T* Fresh(int64_t bytes) {
  void* data = nullptr;
  Check(cudaMalloc(&data, static_cast<size_t>(bytes)), "allocate");
  Check(cudaMemset(data, 0, static_cast<size_t>(bytes)), "clear");
  Check(cudaDeviceSynchronize(), "clear");  // the stream does not wait for the default one
  return static_cast<T*>(data);
}
template <typename T>
T* Fresh(const std::vector<T>& values) {
  T* data = Fresh<T>(static_cast<int64_t>(values.size() * sizeof(T)));
  Check(cudaMemcpy(data, values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice), "copy");
  return data;
}
// Random values with a deviation of 1, tiled from a million of them.
void* Noise(Dtype type, int64_t n) {
  constexpr int64_t kTile = 1 << 20;
  static std::vector<float> tile;
  static const float* device_tile = nullptr;
  if (tile.empty()) {
    std::mt19937_64 random(1);
    std::normal_distribution<float> normal;
    for (int64_t i = 0; i < kTile; ++i) tile.push_back(normal(random));
    device_tile = Fresh(tile);
  }
  void* out = Fresh(n * Bytes(type));
  std::vector<PackItem> items;
  for (int64_t at = 0; at < n; at += kTile) {
    items.push_back({const_cast<float*>(device_tile), at, std::min(kTile, n - at)});
  }
  Check(Pack(items, Dtype::kFloat32, out, type, 1, nullptr, stream));
  return out;
}

double MedianMilliseconds(const std::function<void()>& call) {
  constexpr int kBatch = 4, kBatches = 15;
  cudaEvent_t begin, end;
  Check(cudaEventCreate(&begin), "event");
  Check(cudaEventCreate(&end), "event");
  for (int i = 0; i < 3; ++i) call();
  std::vector<double> times;
  for (int b = 0; b < kBatches; ++b) {
    Check(cudaEventRecord(begin, stream), "record");
    for (int i = 0; i < kBatch; ++i) call();
    Check(cudaEventRecord(end, stream), "record");
    Check(cudaEventSynchronize(end), "wait");
    float ms = 0;
    Check(cudaEventElapsedTime(&ms, begin, end), "time");
    times.push_back(static_cast<double>(ms) / kBatch);
  }
  std::nth_element(times.begin(), times.begin() + kBatches / 2, times.end());
  return times[kBatches / 2];
}

double copy_rate = 0;  // bytes a second, read and written

void Report(const std::string& name, const std::string& shape, double bytes, double operations,
            const std::function<void()>& call) {
  const double ms = MedianMilliseconds(call);
  const double rate = bytes / ms * 1e3;
  if (copy_rate == 0) copy_rate = rate;
  std::printf("| %s | %s | %.1f MB | %.0f M | %.1f | %.1f | %.2f | %.0f %% |\n", name.c_str(),
              shape.c_str(), bytes / 1e6, operations / 1e6, bytes / copy_rate * 1e6, ms * 1e3,
              rate / 1e12, rate / copy_rate * 100);
  std::fflush(stdout);
}

// The parameters of GPT-2 124M, each on a boundary of 8 elements in one buffer.
struct Model {
  Model() {
    const int64_t c = 768;
    Add(50257 * c);
    Add(1024 * c);
    for (int layer = 0; layer < 12; ++layer) {
      for (const int64_t size :
           {c, c, 3 * c * c, 3 * c, c * c, c, c, c, 4 * c * c, 4 * c, 4 * c * c, c}) {
        Add(size);
      }
    }
    Add(c);
    Add(c);
  }
  void Add(int64_t size) {
    offsets.push_back(n);
    sizes.push_back(size);
    n += (size + 7) / 8 * 8;
  }

  std::vector<int64_t> offsets, sizes;
  int64_t n = 0;
};

void Optimizers() {
  const Model model;
  const double n = static_cast<double>(model.n);
  float* const master = static_cast<float*>(Noise(Dtype::kFloat32, model.n));
  float* const first = Fresh<float>(model.n * 4);
  float* const second = Fresh<float>(model.n * 4);
  char* const copy = Fresh<char>(model.n * 2);
  double* const sum = Fresh<double>(8);
  int32_t* const bad = Fresh<int32_t>(4);
  UpdateCounts* const counts = Fresh<UpdateCounts>(sizeof(UpdateCounts));
  UpdatePlan* const plan = Fresh<UpdatePlan>(sizeof(UpdatePlan));
  const AdamWRule rule = {.learning_rate = 1e-4, .beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8};
  for (const Dtype type : {Dtype::kFloat32, Dtype::kBfloat16}) {
    const bool mixed = type == Dtype::kBfloat16;
    const std::string shape = mixed ? "124M bf16, master fp32" : "124M fp32";
    char* const gradient = static_cast<char*>(Noise(type, model.n));
    std::vector<GradientTensor> gradients;
    std::vector<AdamWTensor> tensors;
    std::vector<SgdTensor> sgd;
    std::vector<PackItem> items;
    for (size_t t = 0; t < model.sizes.size(); ++t) {
      const int64_t at = model.offsets[t], size = model.sizes[t];
      void* const g = gradient + at * Bytes(type);
      void* const copied = mixed ? copy + at * 2 : nullptr;
      gradients.push_back({g, size});
      tensors.push_back({master + at, copied, g, first + at, second + at, size, at, 0.1f});
      sgd.push_back({master + at, copied, g, first + at, size, at, 0.1f});
      items.push_back({g, at, size});
    }
    void* const workspace = Fresh(SumOfSquaresWorkspace(gradients));
    const auto norm = [&] { Check(SumOfSquares(gradients, type, workspace, sum, bad, stream)); };
    const auto plan_update = [&] {
      Check(PlanUpdate({.max_norm = 1, .gradient_scale = 1, .beta1 = 0.9, .beta2 = 0.95}, sum, bad,
                       nullptr, counts, plan, stream));
    };
    const auto adamw = [&](bool stochastic) {
      Check(AdamW(rule, tensors, Dtype::kBfloat16, type, {stochastic, 7}, plan, stream));
    };
    const double g = static_cast<double>(Bytes(type)), states = mixed ? 26 : 24;
    norm();
    plan_update();
    Report("SumOfSquares", shape, n * g, 2 * n, norm);
    Report("AdamW", shape, n * (states + g), 14 * n, [&] { adamw(false); });
    Report("norm + clip + AdamW", shape, n * (states + 2 * g), 16 * n, [&] {
      norm();
      plan_update();
      adamw(false);
    });
    if (mixed) {
      Report("the same, stochastic rounding", shape, n * (states + 2 * g), 36 * n, [&] {
        norm();
        plan_update();
        adamw(true);
      });
    }
    Report("Sgd", shape, n * ((mixed ? 18 : 16) + g), 6 * n, [&] {
      Check(Sgd({.learning_rate = 1e-4, .momentum = 0.9}, sgd, Dtype::kBfloat16, type, {}, plan,
                stream));
    });
    Report("Pack to bf16", mixed ? "124M bf16" : "124M fp32", n * (g + 2), n,
           [&] { Check(Pack(items, type, copy, Dtype::kBfloat16, 0.5f, nullptr, stream)); });
    uint64_t* const digests = Fresh<uint64_t>(static_cast<int64_t>(8 * items.size()));
    std::vector<DigestTensor> digested;
    for (const PackItem& item : items) digested.push_back({item.tensor, item.n * Bytes(type)});
    Report("Digest", shape, n * g, n * g / 8 * 9,
           [&] { Check(Digest(digested, digests, stream)); });
    char* const parts = Fresh<char>(2 * CompressedBytes(model.n));
    const double code_bytes = static_cast<double>(CompressedBytes(model.n));
    for (const Code code : {Code::kInt8, Code::kFp8}) {
      const std::string name = code == Code::kInt8 ? " int8" : " fp8";
      Report("Compress" + name + ", error kept", shape, n * (g + 8) + code_bytes, 6 * n,
             [&] { Check(Compress(code, type, gradient, 1, first, parts, model.n, stream)); });
      Report("DecompressSum" + name + ", 2 parts", shape, n * g + 2 * code_bytes, 5 * n, [&] {
        Check(DecompressSum(code, parts, 2, CompressedBytes(model.n), 0.5f, type, gradient, model.n,
                            stream));
      });
    }
    Check(cudaMemset(first, 0, static_cast<size_t>(model.n * 4)), "clear");
    Check(cudaDeviceSynchronize(), "clear");
  }
}

void Activations(Dtype type, const std::string& suffix) {
  constexpr int64_t kSamples = 32, kContext = 1024, kRows = kSamples * kContext;
  const double b = static_cast<double>(Bytes(type));
  float* const mean = Fresh<float>(kRows * 4);
  float* const inverse = Fresh<float>(kRows * 4);
  for (const int64_t width : {768, 1600}) {
    const int64_t n = kRows * width;
    const double bytes = static_cast<double>(n) * b;
    const std::string shape = "32768 × " + std::to_string(width) + suffix;
    void* const x = Noise(type, n);
    void* const residual = Noise(type, n);
    void* const sum = Noise(type, n);
    void* const y = Noise(type, n);
    void* const weight = Noise(type, width);
    void* const bias = Noise(type, width);
    void* const dweight = Fresh(4 * width);
    void* const workspace = Fresh(ResidualNormWorkspace(kRows, width));
    Report("ResidualNormForward", shape, 4 * bytes, 8 * static_cast<double>(n), [&] {
      Check(ResidualNormForward(type, x, residual, weight, bias, sum, y, mean, inverse, kRows,
                                width, stream));
    });
    Report("ResidualNormBackward", shape, 4 * bytes, 16 * static_cast<double>(n), [&] {
      Check(ResidualNormBackward(type, y, sum, mean, inverse, weight, false, x, type, dweight,
                                 dweight, workspace, kRows, width, stream));
    });
    if (width != 768) continue;
    const EmbeddingShape tokens_shape{kSamples, kContext, width, 50257};
    std::vector<int32_t> tokens;
    std::mt19937_64 random(2);
    std::uniform_real_distribution<double> uniform;
    for (int64_t i = 0; i < kRows; ++i) {  // as frequent as words are: 1 / rank
      tokens.push_back(static_cast<int32_t>(std::exp(uniform(random) * std::log(50257.0))) - 1);
    }
    const int32_t* const ids = Fresh(tokens);
    void* const table = Noise(type, 50257 * width);
    void* const position = Noise(type, kContext * width);
    void* const scratch = Fresh(EmbeddingWorkspace(tokens_shape));
    Report("EmbeddingForward", shape, 2 * bytes, static_cast<double>(n),
           [&] { Check(EmbeddingForward(type, ids, table, position, y, tokens_shape, stream)); });
    Report("EmbeddingBackward", shape + ", Zipf's tokens", 2 * bytes, 2 * static_cast<double>(n),
           [&] {
             Check(EmbeddingBackward(type, ids, y, type, table, position, scratch, tokens_shape,
                                     stream));
           });
    std::vector<int64_t> samples;
    for (int64_t s = 0; s < kSamples; ++s) samples.push_back(s);
    const int64_t* const sample_ids = Fresh(samples);
    Report("Dropout", shape, 2 * bytes, 10 * static_cast<double>(n), [&] {
      Check(Dropout(type, {{1, 2}}, 0.1, sample_ids, x, kSamples, kContext * width, stream));
    });
  }
  const int64_t width = 3072, n = kRows * width;
  const double bytes = static_cast<double>(n) * b;
  const std::string shape = "32768 × 3072" + suffix;
  void* const x = Noise(type, n);
  void* const y = Noise(type, n);
  void* const bias = Noise(type, width);
  void* const workspace = Fresh(BiasWorkspace(kRows, width));
  Report("BiasGeluForward", shape, 3 * bytes, 20 * static_cast<double>(n),
         [&] { Check(BiasGeluForward(type, bias, x, y, kRows, width, stream)); });
  Report("BiasGeluBackward", shape, 3 * bytes, 2 * static_cast<double>(n),
         [&] { Check(BiasGeluBackward(type, x, y, type, bias, workspace, kRows, width, stream)); });
  Report("BiasReluForward", shape, 2 * bytes, 2 * static_cast<double>(n),
         [&] { Check(BiasReluForward(type, bias, x, kRows, width, stream)); });
  Report("BiasBackward", shape, bytes, static_cast<double>(n),
         [&] { Check(BiasBackward(type, x, type, bias, workspace, kRows, width, stream)); });
}

void Classifier(Dtype type, const std::string& suffix) {
  const ClassifierShape shape{16384, 50257, 50304};
  const int64_t n = shape.rows * shape.stride;
  const double bytes = static_cast<double>(n * Bytes(type));
  void* const logits = Noise(type, n);
  std::vector<int32_t> classes;
  for (int64_t r = 0; r < shape.rows; ++r) classes.push_back(static_cast<int32_t>(r * 3));
  const int32_t* const targets = Fresh(classes);
  float* const losses = Fresh<float>(shape.rows * 4);
  int32_t* const correct = Fresh<int32_t>(shape.rows * 4);
  const std::string text = "16384 × 50257 of 50304" + suffix;
  Report("ClassifierForwardBackward", text, 2 * bytes, 8 * static_cast<double>(n), [&] {
    Check(ClassifierForwardBackward(type, logits, targets, 1, nullptr, losses, shape, stream));
  });
  Report("ClassifierEvaluate", text, bytes, 4 * static_cast<double>(n),
         [&] { Check(ClassifierEvaluate(type, logits, targets, losses, correct, shape, stream)); });
}

int Main() {
  int devices = 0;
  const cudaError_t error = cudaGetDeviceCount(&devices);
  if (error != cudaSuccess || devices == 0) {
    std::printf("no GPU: %s\n", cudaGetErrorString(error));
    return 77;
  }
  cudaDeviceProp device;
  Check(cudaGetDeviceProperties(&device, 0), "ask for the GPU's name");
  Check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "stream");
  std::printf(
      "%s\n\n| operation | shape | bytes moved | operations | floor, µs | measured, µs | TB/s | "
      "share of the floor |\n| --- | --- | --- | --- | --- | --- | --- | --- |\n",
      device.name);
  const int64_t bytes = int64_t{2} << 30;
  char* const from = static_cast<char*>(Noise(Dtype::kFloat32, bytes / 4));
  char* const to = Fresh<char>(bytes);
  Report("copy", "2 GiB", 2.0 * static_cast<double>(bytes), 0, [&] {
    Check(cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), cudaMemcpyDeviceToDevice, stream),
          "copy");
  });
  Optimizers();
  Activations(Dtype::kBfloat16, " bf16");
  Activations(Dtype::kFloat32, " fp32");
  Classifier(Dtype::kBfloat16, " bf16");
  Classifier(Dtype::kFloat32, " fp32");
  return 0;
}

}  // namespace
}  // namespace trainctl::cuda

int main() { return trainctl::cuda::Main(); }
