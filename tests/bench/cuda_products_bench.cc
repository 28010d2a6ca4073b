// Milliseconds of the matrix products and of attention in a step of GPT-2 124M, on this GPU.
#include <cuda_runtime_api.h>

#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <vector>

#include "kernels/cuda/attention.h"
#include "kernels/cuda/linear.h"
#include "runtime/base/check.h"

namespace trainctl {
namespace {

using cuda::Dtype;
using cuda::LinearShape;

constexpr int kRuns = 20;
constexpr size_t kWorkspaceBytes = size_t{64} << 20;

// Random 16-bit values of about 0.5 to 2 in size: a product of zeros would be faster.
void* Random(int64_t n) {
  std::vector<uint16_t> values(static_cast<size_t>(n));
  uint32_t x = 12345;
  for (uint16_t& v : values) {
    x = x * 1664525u + 1013904223u;
    v = static_cast<uint16_t>(0x3f00 | (x >> 31 << 15) | (x >> 16 & 0xff));
  }
  void* data = nullptr;
  CHECK(cudaMalloc(&data, static_cast<size_t>(n) * 2) == cudaSuccess);
  CHECK(cudaMemcpy(data, values.data(), static_cast<size_t>(n) * 2, cudaMemcpyHostToDevice) ==
        cudaSuccess);
  return data;
}

void Time(const char* what, double flops, const std::function<absl::Status()>& call) {
  cudaEvent_t begin, end;
  cudaEventCreate(&begin);
  cudaEventCreate(&end);
  absl::Status status;
  for (int i = 0; i < 3 && status.ok(); ++i) status = call();
  cudaEventRecord(begin, nullptr);
  for (int i = 0; i < kRuns && status.ok(); ++i) status = call();
  cudaEventRecord(end, nullptr);
  cudaEventSynchronize(end);
  float ms = 0;
  cudaEventElapsedTime(&ms, begin, end);
  ms /= kRuns;
  if (status.ok()) {
    std::printf("%-44s %8.3f ms %7.1f TFLOP/s\n", what, static_cast<double>(ms), flops / ms * 1e-9);
  } else {
    std::printf("%-44s %s\n", what, status.ToString().c_str());
  }
  std::fflush(stdout);
}

void TimeLinear(const char* name, cuda::Linear& linear, LinearShape s, bool gelu, void* x, void* w,
                void* y, void* z, void* bias, void* dw) {
  const double flops = 2.0 * static_cast<double>(s.rows * s.in) * static_cast<double>(s.out);
  char what[64];
  const auto title = [&](const char* part) {
    std::snprintf(what, sizeof(what), "%s %s", name, part);
    return what;
  };
  constexpr Dtype kType = Dtype::kBfloat16;
  Time(title("forward"), flops, [&] { return linear.Forward(kType, s, x, w, bias, y, nullptr); });
  if (gelu) {
    Time(title("forward + gelu"), flops,
         [&] { return linear.GeluForward(kType, s, x, w, bias, z, y, nullptr); });
  }
  Time(title("gradient of input"), flops,
       [&] { return linear.BackwardInput(kType, s, y, w, x, nullptr); });
  if (gelu) {  // of the layer after it
    const LinearShape next = {s.rows, s.out, s.in};
    Time(title("gradient through gelu"), flops,
         [&] { return linear.GeluBackwardInput(kType, next, x, w, z, y, nullptr); });
  }
  Time(title("gradient of weight"), flops,
       [&] { return linear.BackwardWeight(kType, s, y, x, Dtype::kFloat32, dw, false, nullptr); });
}

void Products(int64_t rows, int candidates) {
  void* workspace = nullptr;
  CHECK(cudaMalloc(&workspace, kWorkspaceBytes) == cudaSuccess);
  auto linear = cuda::Linear::Open(
      {.workspace = workspace, .workspace_bytes = kWorkspaceBytes, .candidates = candidates});
  if (!linear.ok()) {
    std::printf("%s\n", linear.status().ToString().c_str());
    return;
  }
  std::printf("---- bf16, %lld rows, best of %d\n", static_cast<long long>(rows), candidates);
  void *x = Random(rows * 3072), *w = Random(50304 * 768), *y = Random(rows * 50304),
       *z = Random(rows * 3072), *bias = Random(50304), *dw = Random(2 * 50304 * 768);
  TimeLinear("qkv 768 -> 2304", **linear, {rows, 768, 2304}, false, x, w, y, z, bias, dw);
  TimeLinear("project 768 -> 768", **linear, {rows, 768, 768}, false, x, w, y, z, bias, dw);
  TimeLinear("expand 768 -> 3072", **linear, {rows, 768, 3072}, true, x, w, y, z, bias, dw);
  TimeLinear("contract 3072 -> 768", **linear, {rows, 3072, 768}, false, x, w, y, z, bias, dw);
  TimeLinear("logits 768 -> 50304", **linear, {rows, 768, 50304}, false, x, w, y, z, nullptr, dw);
  for (void* p : {x, w, y, z, bias, dw, workspace}) cudaFree(p);
}

void Attention(int64_t samples, int64_t context) {
  const ops::AttentionShape shape = {samples, context, 12, 64};
  const int64_t rows = samples * context;
  std::printf("---- attention, bf16, %lld x %lld, 12 heads of 64\n",
              static_cast<long long>(samples), static_cast<long long>(context));
  void *qkv = Random(rows * 2304), *dqkv = Random(rows * 2304), *y = Random(rows * 768),
       *dy = Random(rows * 768);
  float *log_sums = static_cast<float*>(Random(rows * 24)),
        *dots = static_cast<float*>(Random(rows * 24));
  // Half of the scores are seen; the two products of the forward pass, the five of the backward.
  const double product = static_cast<double>(rows * context) * 768;
  Time("forward", 2 * product,
       [&] { return cuda::AttentionForward(Dtype::kBfloat16, shape, qkv, y, log_sums, nullptr); });
  Time("backward", 5 * product, [&] {
    return cuda::AttentionBackward(Dtype::kBfloat16, shape, dy, qkv, y, log_sums, dqkv, dots,
                                   nullptr);
  });
  for (void* p : {qkv, dqkv, y, dy}) cudaFree(p);
  cudaFree(log_sums);
  cudaFree(dots);
}

int Main(int argc, char** argv) {
  const int64_t samples = argc > 1 ? std::atoll(argv[1]) : 32;
  const bool products = argc < 3 || std::atoi(argv[2]) != 0;
  Attention(samples, 1024);
  if (!products) return 0;
  for (const int candidates : {1, 8}) Products(samples * 1024, candidates);
  return 0;
}

}  // namespace
}  // namespace trainctl

int main(int argc, char** argv) { return trainctl::Main(argc, argv); }
