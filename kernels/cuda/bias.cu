#include "kernels/cuda/bias.h"

#include "kernels/cuda/rows.cuh"

namespace trainctl::cuda {
namespace {

struct JustSum {
  static constexpr bool kWrites = false;
};

}  // namespace

int64_t BiasWorkspace(int64_t rows, int64_t width) {
  return CeilDivide(rows, RowsOfGroup(rows)) * width * static_cast<int64_t>(sizeof(float));
}

absl::Status BiasBackward(Dtype type, const void* dy, Dtype gradient_type, void* db,
                          void* workspace, int64_t rows, int64_t width, cudaStream_t stream) {
  return WithType(type, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    return LaunchBackwardRows<T>("BiasBackward", nullptr, static_cast<T*>(const_cast<void*>(dy)),
                                 gradient_type, db, workspace, rows, width, JustSum(), stream);
  });
}

}  // namespace trainctl::cuda
