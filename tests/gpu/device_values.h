// Arrays of a GPU for tests: filled from float32, rounded to a type, read back as float32.
#ifndef TRAINCTL_TESTS_GPU_DEVICE_VALUES_H_
#define TRAINCTL_TESTS_GPU_DEVICE_VALUES_H_

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime_api.h>

#include <cstdint>
#include <vector>

#include "kernels/cuda/dtype.h"
#include "runtime/base/check.h"

namespace trainctl {

// A reason why no test that needs a GPU can run here, or null.
inline const char* WhyNoGpu() {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error != cudaSuccess) return cudaGetErrorString(error);
  return count == 0 ? "there is no GPU" : nullptr;
}

class DeviceValues {
 public:
  DeviceValues(cuda::Dtype type, const std::vector<float>& values)
      : type_(type), n_(values.size()) {
    std::vector<uint16_t> halves(values.size());
    for (size_t i = 0; i < values.size(); ++i) halves[i] = Half(values[i]);
    CHECK(cudaMalloc(&data_, bytes() + 1) == cudaSuccess);
    const void* from = type == cuda::Dtype::kFloat32 ? static_cast<const void*>(values.data())
                                                     : static_cast<const void*>(halves.data());
    CHECK(cudaMemcpy(data_, from, bytes(), cudaMemcpyHostToDevice) == cudaSuccess);
  }
  // Of n elements, each NaN: what is not written shows.
  DeviceValues(cuda::Dtype type, int64_t n) : type_(type), n_(static_cast<size_t>(n)) {
    CHECK(cudaMalloc(&data_, bytes() + 1) == cudaSuccess);
    CHECK(cudaMemset(data_, 0xff, bytes()) == cudaSuccess);
  }
  ~DeviceValues() { cudaFree(data_); }
  DeviceValues(const DeviceValues&) = delete;
  DeviceValues& operator=(const DeviceValues&) = delete;

  void* data() const { return data_; }
  float* floats() const { return static_cast<float*>(data_); }
  size_t bytes() const { return n_ * static_cast<size_t>(cuda::Bytes(type_)); }

  // Waits for the device.
  std::vector<float> Read() const {
    std::vector<float> values(n_);
    std::vector<uint16_t> halves(n_);
    void* to = type_ == cuda::Dtype::kFloat32 ? static_cast<void*>(values.data())
                                              : static_cast<void*>(halves.data());
    CHECK(cudaDeviceSynchronize() == cudaSuccess);
    CHECK(cudaMemcpy(to, data_, bytes(), cudaMemcpyDeviceToHost) == cudaSuccess);
    if (type_ == cuda::Dtype::kFloat32) return values;
    for (size_t i = 0; i < n_; ++i) values[i] = Single(halves[i]);
    return values;
  }

 private:
  uint16_t Half(float x) const {
    return type_ == cuda::Dtype::kFloat16
               ? static_cast<__half_raw>(__float2half_rn(x)).x
               : static_cast<__nv_bfloat16_raw>(__float2bfloat16_rn(x)).x;
  }
  float Single(uint16_t bits) const {
    if (type_ == cuda::Dtype::kFloat16) {
      __half_raw raw;
      raw.x = bits;
      return __half2float(__half(raw));
    }
    __nv_bfloat16_raw raw;
    raw.x = bits;
    return __bfloat162float(__nv_bfloat16(raw));
  }

  const cuda::Dtype type_;
  const size_t n_;
  void* data_ = nullptr;
};

}  // namespace trainctl

#endif  // TRAINCTL_TESTS_GPU_DEVICE_VALUES_H_
