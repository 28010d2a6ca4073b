// Matrix products of fully connected layers on a GPU, by cuBLASLt. Weights are [out, in], as in
// kernels/linear.h. The library is opened when it is first needed: a program that holds this code
// starts without it.
#ifndef TRAINCTL_KERNELS_CUDA_LINEAR_H_
#define TRAINCTL_KERNELS_CUDA_LINEAR_H_

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/cuda/dtype.h"

namespace trainctl::cuda {

struct LinearShape {
  int64_t rows, in, out;
};

struct LinearOptions {
  // Device memory of the products' own, used by one stream at a time. With less than 32 MiB some
  // shapes are slower.
  void* workspace = nullptr;
  size_t workspace_bytes = 0;
  bool tf32 = false;  // float32 products may round their inputs to 10 bits
  // 1: the first algorithm that cuBLASLt proposes for a shape, the same in every run. More: the
  // fastest of so many in a short measurement at the first use of a shape, which another run may
  // decide otherwise, with other roundings.
  int candidates = 1;
};

// One device, the current one. Sums are in float32. Every row of a 16-bit matrix begins on a
// 16-byte boundary (sizes are multiples of 8), or products are slow. After the first use of a shape
// no call allocates or waits. Not thread-safe.
class Linear {
 public:
  // NOT_FOUND: there is no cuBLASLt; the text says where it was looked for.
  static absl::StatusOr<std::unique_ptr<Linear>> Open(const LinearOptions& options);
  virtual ~Linear() = default;

  // y[rows, out] = x[rows, in] · wᵀ + bias[out]. bias may be null. All of `type`.
  virtual absl::Status Forward(Dtype type, const LinearShape& shape, const void* x, const void* w,
                               const void* bias, void* y, cudaStream_t stream) = 0;
  // before[rows, out] = x · wᵀ + bias, y = gelu(before); kernels/gelu.h has the formula. 16-bit
  // types only.
  virtual absl::Status GeluForward(Dtype type, const LinearShape& shape, const void* x,
                                   const void* w, const void* bias, void* before, void* y,
                                   cudaStream_t stream) = 0;
  // dx[rows, in] = dy[rows, out] · w.
  virtual absl::Status BackwardInput(Dtype type, const LinearShape& shape, const void* dy,
                                     const void* w, void* dx, cudaStream_t stream) = 0;
  // dx = (dy · w) times the derivative of gelu at before[rows, in]. 16-bit types only.
  virtual absl::Status GeluBackwardInput(Dtype type, const LinearShape& shape, const void* dy,
                                         const void* w, const void* before, void* dx,
                                         cudaStream_t stream) = 0;
  // dw[out, in], of gradient_type (`type`, or float32), = dyᵀ · x, or += where `accumulate`.
  virtual absl::Status BackwardWeight(Dtype type, const LinearShape& shape, const void* dy,
                                      const void* x, Dtype gradient_type, void* dw, bool accumulate,
                                      cudaStream_t stream) = 0;
};

}  // namespace trainctl::cuda

#endif  // TRAINCTL_KERNELS_CUDA_LINEAR_H_
