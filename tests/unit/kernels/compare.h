// Random arrays for tests of operations, and their comparison with a double reference.
#ifndef TRAINCTL_TESTS_UNIT_KERNELS_COMPARE_H_
#define TRAINCTL_TESTS_UNIT_KERNELS_COMPARE_H_

#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

namespace trainctl {

constexpr double kTolerance = 5e-6;  // relative error in the 2-norm

// Seeded by the test, so that every run has the same data.
inline std::vector<float> RandomArray(int64_t n, uint32_t seed, float deviation = 1.0f) {
  std::mt19937 engine(seed);
  std::normal_distribution<float> normal(0.0f, deviation);
  std::vector<float> x(static_cast<size_t>(n));
  for (float& v : x) v = normal(engine);
  return x;
}

// What an output holds before the operation: an element that is not written stays NaN.
inline std::vector<float> Poisoned(int64_t n) {
  return std::vector<float>(static_cast<size_t>(n), std::numeric_limits<float>::quiet_NaN());
}

inline std::vector<double> Double(const std::vector<float>& x) { return {x.begin(), x.end()}; }

// |got - want| / |want|; NaN if any element is.
inline double RelativeError(const std::vector<float>& got, const std::vector<double>& want) {
  double error = 0, norm = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    error += (got[i] - want[i]) * (got[i] - want[i]);
    norm += want[i] * want[i];
  }
  return got.size() == want.size() ? std::sqrt(error / (norm > 0 ? norm : 1))
                                   : std::numeric_limits<double>::infinity();
}

}  // namespace trainctl

#endif  // TRAINCTL_TESTS_UNIT_KERNELS_COMPARE_H_
