// Types of the elements that the operations of this folder read and write. They compute in float32.
#ifndef TRAINCTL_KERNELS_CUDA_DTYPE_H_
#define TRAINCTL_KERNELS_CUDA_DTYPE_H_

#include <cstdint>

namespace trainctl::cuda {

enum class Dtype : int32_t { kFloat32, kBfloat16, kFloat16 };

constexpr int64_t Bytes(Dtype type) { return type == Dtype::kFloat32 ? 4 : 2; }

}  // namespace trainctl::cuda

#endif  // TRAINCTL_KERNELS_CUDA_DTYPE_H_
