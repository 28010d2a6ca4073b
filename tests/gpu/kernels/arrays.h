// Arrays on the GPU for tests: poisoned before use, with guards before and behind that every read
// back checks; random values; and the comparison with a reference in double.
#ifndef TRAINCTL_TESTS_GPU_KERNELS_ARRAYS_H_
#define TRAINCTL_TESTS_GPU_KERNELS_ARRAYS_H_

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "kernels/cuda/dtype.h"

namespace trainctl::cuda {

using Numbers = std::vector<double>;

inline std::mt19937_64& Random() {
  static std::mt19937_64 random;
  return random;
}
// Whether to keep to sizes that a checker of memory accesses can follow.
inline bool& Small() {
  static bool small = false;
  return small;
}
inline std::vector<int64_t> Lengths() {
  if (Small()) return {1, 3, 127, 1023, 9001};
  return {1, 3, 127, 1023, 4096, 100003, 1000000};
}
inline const std::vector<Dtype>& Types() {
  static const std::vector<Dtype> types = {Dtype::kFloat32, Dtype::kBfloat16, Dtype::kFloat16};
  return types;
}
inline const char* Name(Dtype type) {
  return type == Dtype::kFloat32 ? "float32" : type == Dtype::kBfloat16 ? "bfloat16" : "float16";
}

inline std::vector<int32_t> Integers(int64_t n, int64_t below) {
  std::uniform_int_distribution<int32_t> distribution(0, static_cast<int32_t>(below - 1));
  std::vector<int32_t> x(static_cast<size_t>(n));
  for (int32_t& v : x) v = distribution(Random());
  return x;
}

#define ASSERT_CUDA(expression) \
  ASSERT_EQ((expression), cudaSuccess) << cudaGetErrorString(cudaGetLastError())
#define ASSERT_OK(expression)                        \
  do {                                               \
    const absl::Status status_ = (expression);       \
    ASSERT_TRUE(status_.ok()) << status_.ToString(); \
  } while (false)

// Bytes on the GPU. `shift` moves the data from its boundary of 256 bytes.
class Guarded {
 public:
  explicit Guarded(size_t bytes, size_t shift = 0) : bytes_(bytes), shift_(shift) {
    EXPECT_EQ(cudaMalloc(&base_, total()), cudaSuccess);
    EXPECT_EQ(cudaMemset(base_, kGuardByte, total()), cudaSuccess);
    EXPECT_EQ(cudaMemset(data(), 0xFF, bytes_), cudaSuccess);  // NaN in every type
  }
  Guarded(const Guarded&) = delete;
  Guarded& operator=(const Guarded&) = delete;
  ~Guarded() { cudaFree(base_); }

  char* data() const { return static_cast<char*>(base_) + kGuard + shift_; }
  void Write(const void* from) {
    EXPECT_EQ(cudaMemcpy(data(), from, bytes_, cudaMemcpyHostToDevice), cudaSuccess);
  }
  std::string Read() const {
    std::string all(total(), '\0');
    const cudaError_t error = cudaMemcpy(all.data(), base_, total(), cudaMemcpyDeviceToHost);
    EXPECT_EQ(error, cudaSuccess) << cudaGetErrorString(error);
    for (size_t i = 0; i < total(); ++i) {
      if (i == kGuard + shift_) i += bytes_;
      if (i < total() && static_cast<unsigned char>(all[i]) != kGuardByte) {
        ADD_FAILURE() << "written outside: byte " << static_cast<int64_t>(i - kGuard - shift_)
                      << " of " << bytes_;
        break;
      }
    }
    return all.substr(kGuard + shift_, bytes_);
  }

 private:
  static constexpr size_t kGuard = 512;
  static constexpr int kGuardByte = 0xA5;
  size_t total() const { return bytes_ + shift_ + 2 * kGuard; }

  size_t bytes_, shift_;
  void* base_ = nullptr;
};

// Plain values of one C++ type.
template <typename T>
class Values : public Guarded {
 public:
  explicit Values(int64_t n) : Guarded(static_cast<size_t>(n) * sizeof(T)) {}
  explicit Values(const std::vector<T>& values) : Values(static_cast<int64_t>(values.size())) {
    Write(values.data());
  }
  T* get() const { return reinterpret_cast<T*>(data()); }
  std::vector<T> Host() const {
    const std::string bytes = Read();
    std::vector<T> values(bytes.size() / sizeof(T));
    std::memcpy(values.data(), bytes.data(), bytes.size());
    return values;
  }
};

inline double Rounded(Dtype type, double value) {
  const float x = static_cast<float>(value);
  if (type == Dtype::kBfloat16) return __bfloat162float(__float2bfloat16_rn(x));
  if (type == Dtype::kFloat16) return __half2float(__float2half_rn(x));
  return x;
}
// So that a reference sees what the GPU sees.
inline Numbers Rounded(Dtype type, Numbers values) {
  for (double& x : values) x = Rounded(type, x);
  return values;
}

inline Numbers Normal(Dtype type, int64_t n, double deviation = 1, double mean = 0) {
  std::normal_distribution<double> distribution(mean, deviation);
  Numbers x(static_cast<size_t>(n));
  for (double& v : x) v = Rounded(type, distribution(Random()));
  return x;
}

// Elements of a type.
class Array : public Guarded {
 public:
  Array(Dtype type, int64_t n, int64_t shift = 0)
      : Guarded(static_cast<size_t>(n * Bytes(type)), static_cast<size_t>(shift * Bytes(type))),
        type_(type),
        n_(static_cast<size_t>(n)) {}
  Array(Dtype type, const Numbers& values, int64_t shift = 0)
      : Array(type, static_cast<int64_t>(values.size()), shift) {
    const size_t width = static_cast<size_t>(Bytes(type));
    std::string bytes(n_ * width, '\0');
    for (size_t i = 0; i < n_; ++i) {
      const float x = static_cast<float>(values[i]);
      const __nv_bfloat16 brain = __float2bfloat16_rn(x);
      const __half half = __float2half_rn(x);
      const void* from = type == Dtype::kFloat32    ? static_cast<const void*>(&x)
                         : type == Dtype::kBfloat16 ? static_cast<const void*>(&brain)
                                                    : &half;
      std::memcpy(bytes.data() + width * i, from, width);
    }
    Write(bytes.data());
  }

  Numbers Host() const {
    const std::string bytes = Read();
    Numbers values(n_);
    for (size_t i = 0; i < n_; ++i) {
      if (type_ == Dtype::kFloat32) {
        float x;
        std::memcpy(&x, bytes.data() + 4 * i, 4);
        values[i] = x;
      } else if (type_ == Dtype::kBfloat16) {
        __nv_bfloat16 x;
        std::memcpy(&x, bytes.data() + 2 * i, 2);
        values[i] = __bfloat162float(x);
      } else {
        __half x;
        std::memcpy(&x, bytes.data() + 2 * i, 2);
        values[i] = __half2float(x);
      }
    }
    return values;
  }
  float* floats() const { return reinterpret_cast<float*>(data()); }

 private:
  Dtype type_;
  size_t n_;
};

// ||out - wanted|| <= limit ||wanted||, and the largest deviation when not. A handful of sums may
// cancel to almost nothing, so that they are allowed more.
inline void ExpectClose(const Numbers& out, const Numbers& wanted, double limit,
                        const std::string& what) {
  ASSERT_EQ(out.size(), wanted.size()) << what;
  double difference = 0, norm = 0, worst = -1;
  size_t at = 0, bad = 0;
  for (size_t i = 0; i < out.size(); ++i) {
    if (std::isnan(wanted[i]) && std::isnan(out[i])) continue;
    const double d = std::abs(out[i] - wanted[i]);
    if (!std::isfinite(d)) ++bad;
    if (!(d <= worst)) {
      worst = d;
      at = i;
    }
    difference += d * d;
    norm += wanted[i] * wanted[i];
  }
  if (out.size() < 8) limit *= 40;
  const double relative = std::sqrt(difference) / std::max(std::sqrt(norm), 1e-30);
  EXPECT_TRUE(relative <= limit && bad == 0)
      << what << ": relative error " << relative << " (limit " << limit << "), " << bad
      << " not finite, of " << out.size() << "; worst at " << at << ": " << out[at]
      << " instead of " << wanted[at];
}
inline double Limit(Dtype type) { return type == Dtype::kFloat32 ? 5e-6 : 5e-3; }
inline void ExpectClose(const Numbers& out, const Numbers& wanted, Dtype type,
                        const std::string& what) {
  ExpectClose(out, wanted, Limit(type), what);
}

// Runs twice what returns the bytes of its outputs: they must be the same.
template <typename Run>
void ExpectRepeatable(Run&& run) {
  const std::vector<std::string> first = run(), second = run();
  ASSERT_EQ(first.size(), second.size());
  for (size_t i = 0; i < first.size(); ++i) {
    EXPECT_TRUE(first[i] == second[i]) << "output " << i << " differs between two runs";
  }
}

}  // namespace trainctl::cuda

#endif  // TRAINCTL_TESTS_GPU_KERNELS_ARRAYS_H_
