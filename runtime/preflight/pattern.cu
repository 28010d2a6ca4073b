#include "runtime/device/cuda_error.h"
#include "runtime/preflight/pattern.h"

namespace trainctl {
namespace {

constexpr int kThreads = 256;
constexpr int kBlocks = 1024;

__device__ uint64_t WordAt(uint64_t seed, size_t i) {
  uint64_t x = seed + (i + 1) * 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

// Small enough that the sum of thousands of ranks is exact.
__device__ float TermAt(size_t i, int rank) { return static_cast<float>((i + 7 * rank) % 61); }

__device__ size_t First() { return blockIdx.x * static_cast<size_t>(blockDim.x) + threadIdx.x; }
__device__ size_t Stride() { return gridDim.x * static_cast<size_t>(blockDim.x); }

__global__ void FillPatternKernel(uint64_t* words, size_t count, uint64_t seed) {
  for (size_t i = First(); i < count; i += Stride()) words[i] = WordAt(seed, i);
}

__global__ void CountWrongWordsKernel(const uint64_t* words, size_t count, uint64_t seed,
                                      unsigned long long* wrong) {
  unsigned long long own = 0;
  for (size_t i = First(); i < count; i += Stride()) own += words[i] != WordAt(seed, i) ? 1 : 0;
  if (own > 0) atomicAdd(wrong, own);
}

__global__ void FillTermsKernel(float* terms, size_t count, int rank) {
  for (size_t i = First(); i < count; i += Stride()) terms[i] = TermAt(i, rank);
}

__global__ void CountWrongSumsKernel(const float* sums, size_t count, int ranks,
                                     unsigned long long* wrong) {
  unsigned long long own = 0;
  for (size_t i = First(); i < count; i += Stride()) {
    float sum = 0;
    for (int rank = 0; rank < ranks; ++rank) sum += TermAt(i, rank);
    own += sums[i] != sum ? 1 : 0;
  }
  if (own > 0) atomicAdd(wrong, own);
}

}  // namespace

absl::Status FillPattern(uint64_t* words, size_t count, uint64_t seed, CudaStream stream) {
  FillPatternKernel<<<kBlocks, kThreads, 0, stream>>>(words, count, seed);
  return LaunchStatus("that fills memory with a pattern");
}

absl::Status CountWrongWords(const uint64_t* words, size_t count, uint64_t seed,
                             unsigned long long* wrong, CudaStream stream) {
  CountWrongWordsKernel<<<kBlocks, kThreads, 0, stream>>>(words, count, seed, wrong);
  return LaunchStatus("that compares memory with a pattern");
}

absl::Status FillTerms(float* terms, size_t count, int rank, CudaStream stream) {
  FillTermsKernel<<<kBlocks, kThreads, 0, stream>>>(terms, count, rank);
  return LaunchStatus("that makes the terms of a sum");
}

absl::Status CountWrongSums(const float* sums, size_t count, int ranks, unsigned long long* wrong,
                            CudaStream stream) {
  CountWrongSumsKernel<<<kBlocks, kThreads, 0, stream>>>(sums, count, ranks, wrong);
  return LaunchStatus("that compares a sum");
}

}  // namespace trainctl
