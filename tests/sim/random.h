// The only source of chance in a simulation: the same seed gives the same numbers everywhere.
#ifndef TRAINCTL_TESTS_SIM_RANDOM_H_
#define TRAINCTL_TESTS_SIM_RANDOM_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "runtime/base/time.h"

namespace trainctl::sim {

class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}

  uint64_t Next() {  // SplitMix64
    uint64_t z = (state_ += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  uint64_t Below(uint64_t n) { return Next() % n; }  // REQUIRES: n > 0
  int Int(int low, int high) {                       // both included
    return low + static_cast<int>(Below(static_cast<uint64_t>(high - low + 1)));
  }
  double Unit() { return static_cast<double>(Next() >> 11) * 0x1.0p-53; }
  bool Chance(double probability) { return Unit() < probability; }
  Duration Between(Duration low, Duration high) {
    return low + Duration(Below(static_cast<uint64_t>((high - low).count()) + 1));
  }
  template <typename T>
  const T& Pick(const std::vector<T>& values) {
    return values[Below(values.size())];
  }
  Random Fork() { return Random(Next()); }

 private:
  uint64_t state_;
};

}  // namespace trainctl::sim

#endif  // TRAINCTL_TESTS_SIM_RANDOM_H_
