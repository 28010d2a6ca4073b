#include "kernels/cuda/digest.h"

#include "kernels/cuda/digest_reference.h"
#include "kernels/cuda/tensor_table.cuh"

namespace trainctl::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kUnroll = 4;
constexpr int kPiece = 64 * 1024;  // bytes

__device__ uint64_t Word(uint32_t low, uint32_t high) {
  return static_cast<uint64_t>(high) << 32 | low;
}

__global__ void __launch_bounds__(kThreads)
    DigestKernel(const __grid_constant__ TensorTable<DigestTensor> table,
                 unsigned long long* digests) {
  __shared__ uint64_t sums[kThreads / kWarp];
  const int t = table.Find(blockIdx.x);
  const int64_t begin = static_cast<int64_t>(blockIdx.x - table.blocks_before[t]) * kPiece;
  const int64_t left = table.item[t].bytes - begin;
  const int bytes = left < kPiece ? static_cast<int>(left) : kPiece;
  const char* data = static_cast<const char*>(table.item[t].data) + begin;
  const uint64_t place = static_cast<uint64_t>(begin / 8);
  uint64_t sum[1] = {0};
  int done = 0;
  if (reinterpret_cast<uintptr_t>(data) % 16 == 0) {
    constexpr int kStride = kThreads * 16 * kUnroll;
    for (; done + kStride <= bytes; done += kStride) {
      uint4 v[kUnroll];
#pragma unroll
      for (int u = 0; u < kUnroll; ++u) {
        v[u] = reinterpret_cast<const uint4*>(data + done)[u * kThreads + threadIdx.x];
      }
#pragma unroll
      for (int u = 0; u < kUnroll; ++u) {
        const uint64_t at = place + done / 8 + (u * kThreads + threadIdx.x) * 2;
        sum[0] += reference::DigestWord(Word(v[u].x, v[u].y), at);
        sum[0] += reference::DigestWord(Word(v[u].z, v[u].w), at + 1);
      }
    }
  }
  for (int at = done + threadIdx.x * 8; at < bytes; at += kThreads * 8) {
    uint32_t half[2] = {0, 0};
    for (int h = 0; h < 2; ++h) {
      const int from = at + 4 * h;
      if (from + 4 <= bytes) {
        half[h] = *reinterpret_cast<const uint32_t*>(data + from);
      } else {
        for (int b = from; b < bytes; ++b) {
          half[h] |= static_cast<uint32_t>(static_cast<unsigned char>(data[b])) << 8 * (b - from);
        }
      }
    }
    sum[0] += reference::DigestWord(Word(half[0], half[1]), place + at / 8);
  }
  BlockSum(sum, sums);
  if (threadIdx.x == 0) {
    atomicAdd(digests + table.first_item + t, static_cast<unsigned long long>(sum[0]));
  }
}

}  // namespace

absl::Status Digest(absl::Span<const DigestTensor> tensors, uint64_t* digests,
                    cudaStream_t stream) {
  if (tensors.empty()) return absl::OkStatus();
  const absl::Status cleared =
      CudaStatus(cudaMemsetAsync(digests, 0, tensors.size() * sizeof(*digests), stream),
                 absl::StrCat("set ", tensors.size(), " digests to zero"));
  if (!cleared.ok()) return cleared;
  return ForTables(
      tensors, kPiece, [](const DigestTensor& tensor) { return tensor.bytes; },
      [&](const TensorTable<DigestTensor>& table, int blocks) {
        DigestKernel<<<blocks, kThreads, 0, stream>>>(
            table, reinterpret_cast<unsigned long long*>(digests));
        return LaunchStatus("Digest");
      });
}

}  // namespace trainctl::cuda
