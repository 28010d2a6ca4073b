// Block-quantised gradients for slow links: one byte a value and one float32 a block of 256 values.
#ifndef TRAINCTL_KERNELS_CUDA_COMPRESS_H_
#define TRAINCTL_KERNELS_CUDA_COMPRESS_H_

#include <cuda_runtime_api.h>

#include <cstdint>

#include "absl/status/status.h"
#include "kernels/cuda/dtype.h"

namespace trainctl::cuda {

// The error of a value x in a block whose largest magnitude is m, both finite:
//   kInt8  at most m / 254 (1 + 1e-4): evenly spaced steps;
//   kFp8   at most max(|x| / 16, m / 448 / 1024) (1 + 1e-4): e4m3, three bits of mantissa.
// A block with m below 1e-36 is sent as zeros; one with a value not finite decodes to NaN
// throughout.
enum class Code : int32_t { kInt8, kFp8 };

constexpr int64_t kCodeBlock = 256;

// Layout: a float32 scale for each block, padded to 16 bytes, then a byte for each value, padded to
// a whole block (zero).
constexpr int64_t CodeBlocks(int64_t n) { return (n + kCodeBlock - 1) / kCodeBlock; }
constexpr int64_t CompressedBytes(int64_t n) {
  return (CodeBlocks(n) * 4 + 15) / 16 * 16 + CodeBlocks(n) * kCodeBlock;
}

// With v = values[i] * scale + error[i]: out = code of v, error[i] = v - what the code decodes to
// (what this step did not send is sent with a later one). A block that is not finite leaves its
// errors as they were. `error` may be null: nothing is carried over. `out` on a 16-byte boundary.
absl::Status Compress(Code code, Dtype type, const void* values, float scale, float* error,
                      void* out, int64_t n, cudaStream_t stream);

// values[i] = scale * the sum over p = 0 … parts - 1, in this order, of what part p decodes to;
// part p begins `part_stride` bytes (a multiple of 16) after part p - 1.
absl::Status DecompressSum(Code code, const void* parts, int64_t part_count, int64_t part_stride,
                           float scale, Dtype type, void* values, int64_t n, cudaStream_t stream);

}  // namespace trainctl::cuda

#endif  // TRAINCTL_KERNELS_CUDA_COMPRESS_H_
