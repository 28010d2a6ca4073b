#include "kernels/cuda/attention.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "kernels/cuda/attention_plain.cuh"
#include "kernels/cuda/attention_tensor_core.cuh"
#include "runtime/base/status.h"

namespace trainctl::cuda {
namespace attention {
namespace {

constexpr int64_t kMaxGridY = 65535;

struct Arguments {
  const void *qkv, *dy, *y;
  void* out;  // y, or dqkv
  const float* log_sums;
  float* row_floats;  // log_sums to write, or row_dots
  int context, heads, head_size;
  unsigned blocks_y;
  float scale;
  cudaStream_t stream;
  dim3 Grid(int rows) const {
    return {static_cast<unsigned>((context + rows - 1) / rows), blocks_y, 1};
  }
};

absl::Status Launch(const char* what, const void* kernel, dim3 grid, int threads, size_t shared,
                    void** arguments, cudaStream_t stream) {
  cudaError_t error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                           static_cast<int>(shared));
  if (error == cudaSuccess) {
    error = cudaLaunchKernel(kernel, grid, dim3(static_cast<unsigned>(threads)), arguments, shared,
                             stream);
  }
  if (error == cudaSuccess) return absl::OkStatus();
  return absl::InternalError(
      absl::StrCat(what, ": launch of ", grid.x, " x ", grid.y, " blocks with ", shared,
                   " bytes of shared memory each: ", cudaGetErrorString(error)));
}

template <typename T, int kD>
struct TensorCore {
  static absl::Status Forward(Arguments a) {
    void* arguments[] = {&a.qkv, &a.out, &a.row_floats, &a.context, &a.heads, &a.scale};
    using Shape = ForwardShape<kD>;
    return Launch("attention, forward", reinterpret_cast<const void*>(&ForwardKernel<T, kD>),
                  a.Grid(Shape::kRows), kThreads, Shape::kBytes, arguments, a.stream);
  }
  static absl::Status Backward(Arguments a) {
    void* query[] = {&a.qkv,        &a.dy,      &a.y,     &a.log_sums, &a.out,
                     &a.row_floats, &a.context, &a.heads, &a.scale};
    RETURN_IF_ERROR(Launch(
        "attention, gradient of q", reinterpret_cast<const void*>(&QueryGradientKernel<T, kD>),
        a.Grid(QueryShape<kD>::kRows), kThreads, QueryShape<kD>::kBytes, query, a.stream));
    void* key[] = {&a.qkv, &a.dy,      &a.log_sums, &a.row_floats,
                   &a.out, &a.context, &a.heads,    &a.scale};
    return Launch("attention, gradient of k and v",
                  reinterpret_cast<const void*>(&KeyGradientKernel<T, kD>),
                  a.Grid(KeyShape<kD>::kRows), kThreads, KeyShape<kD>::kBytes, key, a.stream);
  }
};

template <typename T>
struct Plain {
  static plain::Head HeadOf(const Arguments& a) {
    return {a.context, a.heads, a.head_size, a.scale};
  }
  static absl::Status Forward(Arguments a) {
    plain::Head head = HeadOf(a);
    void* arguments[] = {&head, &a.qkv, &a.out, &a.row_floats};
    return Launch("attention, forward", reinterpret_cast<const void*>(&plain::ForwardKernel<T>),
                  a.Grid(plain::kRows), plain::kThreads, plain::SharedBytes(a.head_size, 3, 1),
                  arguments, a.stream);
  }
  static absl::Status Backward(Arguments a) {
    plain::Head head = HeadOf(a);
    void* query[] = {&head, &a.qkv, &a.dy, &a.y, &a.log_sums, &a.out, &a.row_floats};
    RETURN_IF_ERROR(Launch("attention, gradient of q",
                           reinterpret_cast<const void*>(&plain::QueryGradientKernel<T>),
                           a.Grid(plain::kRows), plain::kThreads,
                           plain::SharedBytes(a.head_size, 4, 1), query, a.stream));
    void* key[] = {&head, &a.qkv, &a.dy, &a.log_sums, &a.row_floats, &a.out};
    return Launch("attention, gradient of k and v",
                  reinterpret_cast<const void*>(&plain::KeyGradientKernel<T>), a.Grid(plain::kRows),
                  plain::kThreads, plain::SharedBytes(a.head_size, 4, 2), key, a.stream);
  }
};

template <typename T>
absl::Status RunHalf(const Arguments& a, bool forward) {
  switch (a.head_size) {
    case 32:
      return forward ? TensorCore<T, 32>::Forward(a) : TensorCore<T, 32>::Backward(a);
    case 64:
      return forward ? TensorCore<T, 64>::Forward(a) : TensorCore<T, 64>::Backward(a);
    case 128:
      return forward ? TensorCore<T, 128>::Forward(a) : TensorCore<T, 128>::Backward(a);
    default:
      return forward ? Plain<T>::Forward(a) : Plain<T>::Backward(a);
  }
}

absl::Status Run(Dtype type, const ops::AttentionShape& shape, Arguments a, bool forward) {
  if (shape.head_size > kMaxHeadSize || shape.samples * shape.heads > kMaxGridY ||
      shape.context > INT32_MAX / 4) {
    return absl::InvalidArgumentError(absl::StrCat(
        "attention on a GPU: heads of ", shape.head_size, ", ", shape.samples, " samples of ",
        shape.heads, " heads and ", shape.context, " positions; at most ", kMaxHeadSize, " and ",
        kMaxGridY, " heads of all samples are possible: use a smaller micro-batch"));
  }
  if (shape.samples == 0) return absl::OkStatus();
  a.context = static_cast<int>(shape.context);
  a.heads = static_cast<int>(shape.heads);
  a.head_size = static_cast<int>(shape.head_size);
  a.blocks_y = static_cast<unsigned>(shape.samples * shape.heads);
  a.scale = static_cast<float>(1 / std::sqrt(static_cast<double>(shape.head_size)));
  switch (type) {
    case Dtype::kBfloat16:
      return RunHalf<__nv_bfloat16>(a, forward);
    case Dtype::kFloat16:
      return RunHalf<__half>(a, forward);
    case Dtype::kFloat32:
      break;
  }
  return forward ? Plain<float>::Forward(a) : Plain<float>::Backward(a);
}

}  // namespace
}  // namespace attention

absl::Status AttentionForward(Dtype type, const ops::AttentionShape& shape, const void* qkv,
                              void* y, float* log_sums, cudaStream_t stream) {
  attention::Arguments a{};
  a.qkv = qkv;
  a.out = y;
  a.row_floats = log_sums;
  a.stream = stream;
  return attention::Run(type, shape, a, true);
}

absl::Status AttentionBackward(Dtype type, const ops::AttentionShape& shape, const void* dy,
                               const void* qkv, const void* y, const float* log_sums, void* dqkv,
                               float* row_dots, cudaStream_t stream) {
  attention::Arguments a{};
  a.qkv = qkv;
  a.dy = dy;
  a.y = y;
  a.out = dqkv;
  a.log_sums = log_sums;
  a.row_floats = row_dots;
  a.stream = stream;
  return attention::Run(type, shape, a, false);
}

}  // namespace trainctl::cuda
