// Eight-lane float arithmetic for the loops in this folder, and the choice of instruction set at
// run time. A loop is written once, as an always-inlined `NameBody`; TRAINCTL_MULTIVERSION compiles
// it for AVX2 with FMA and for the baseline, so that one binary runs on any x86-64. The order of
// every sum is written out in lanes, so a result depends neither on the compiler's choices nor on
// timing. Comparisons are written so that NaN goes through.
#ifndef TRAINCTL_KERNELS_VECTOR_H_
#define TRAINCTL_KERNELS_VECTOR_H_

#include <cstdint>

#define TRAINCTL_INLINE inline __attribute__((always_inline))

#if defined(__x86_64__)
#define TRAINCTL_MULTIVERSION(Return, Name, Parameters, Arguments)          \
  __attribute__((target("avx2,fma"))) static Return Name##Avx2 Parameters { \
    return Name##Body Arguments;                                            \
  }                                                                         \
  Return Name Parameters { return HasAvx2() ? Name##Avx2 Arguments : Name##Body Arguments; }
#else
#define TRAINCTL_MULTIVERSION(Return, Name, Parameters, Arguments) \
  Return Name Parameters { return Name##Body Arguments; }
#endif

namespace trainctl::ops {

// True if the processor and the operating system support AVX2 and FMA.
bool HasAvx2();

constexpr int64_t kLanes = 8;
typedef float Float8 __attribute__((vector_size(32)));
typedef int32_t Int8x32 __attribute__((vector_size(32)));
typedef double Double8 __attribute__((vector_size(64)));

// How many of the eight lanes are in memory: all, or the first `count` at the end of an array.
struct AllLanes {};
struct SomeLanes {
  int64_t count;
};

TRAINCTL_INLINE Float8 Load(const float* p, AllLanes = {}) {
  Float8 v;
  __builtin_memcpy(&v, p, sizeof v);
  return v;
}
TRAINCTL_INLINE Float8 Load(const float* p, SomeLanes lanes) {
  float v[kLanes] = {};
  for (int64_t i = 0; i < lanes.count; ++i) v[i] = p[i];
  return Load(v);
}
TRAINCTL_INLINE void Store(float* p, Float8 v, AllLanes = {}) { __builtin_memcpy(p, &v, sizeof v); }
TRAINCTL_INLINE void Store(float* p, Float8 v, SomeLanes lanes) {
  for (int64_t i = 0; i < lanes.count; ++i) p[i] = v[i];
}
// Zero in the lanes that are not in memory.
TRAINCTL_INLINE Float8 Keep(Float8 v, AllLanes) { return v; }
TRAINCTL_INLINE Float8 Keep(Float8 v, SomeLanes lanes) {
  float kept[kLanes] = {};
  Store(kept, v, lanes);
  return Load(kept);
}
// As a difference, which is exact and which compilers turn into one broadcast.
TRAINCTL_INLINE Float8 Splat(float x) { return x - Float8{}; }

// Calls body(i, lanes) for i = 0, 8, 16 …; lanes is SomeLanes for a last, incomplete vector.
template <typename Body>
TRAINCTL_INLINE void ForVectors(int64_t n, Body&& body) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) body(i, AllLanes{});
  if (i < n) body(i, SomeLanes{n - i});
}

TRAINCTL_INLINE float Sum(Float8 v) {
  return ((v[0] + v[4]) + (v[2] + v[6])) + ((v[1] + v[5]) + (v[3] + v[7]));
}
TRAINCTL_INLINE double Sum(Double8 v) {
  return ((v[0] + v[4]) + (v[2] + v[6])) + ((v[1] + v[5]) + (v[3] + v[7]));
}
TRAINCTL_INLINE Float8 Max(Float8 a, Float8 b) { return a > b ? a : b; }
TRAINCTL_INLINE float Max(Float8 v) {
  float m = v[0];
  for (int i = 1; i < kLanes; ++i) m = v[i] > m ? v[i] : m;
  return m;
}

// e^x with a relative error of at most 1.5e-7 (tests/unit/kernels/vector_test.cc goes through the
// range); 0 below -87, infinity above 88.72, NaN for NaN.
TRAINCTL_INLINE Float8 Exp(Float8 x) {
  const Float8 lowest = Splat(-87.0f), highest = Splat(88.72f);
  Float8 y = x < lowest ? lowest : x;
  y = y > highest ? highest : y;
  // Adding 1.5 * 2^23 rounds to the nearest integer, whose low bits are then those of the sum.
  const Float8 shift = Splat(12582912.0f);
  const Float8 shifted = y * 1.44269504f + shift;
  const Float8 n = shifted - shift;
  // ln 2 in two parts: the first has few bits, so that n times it is exact.
  const Float8 r = (y - n * 0.693359375f) - n * -2.12194440e-4f;
  Float8 q = Splat(1.38145399e-3f);
  q = q * r + 8.36874513e-3f;
  q = q * r + 4.16683908e-2f;
  q = q * r + 0.166665204f;
  q = q * r + 0.499999934f;
  const Float8 mantissa = (q * r * r + r) + 1.0f;
  const Int8x32 exponent = (Int8x32)shifted << 23;
  Float8 result = (Float8)((Int8x32)mantissa + exponent);
  result = x < lowest ? Float8{} : result;
  result = x > highest ? Splat(__builtin_inff()) : result;
  return x == x ? result : x;
}

}  // namespace trainctl::ops

#endif  // TRAINCTL_KERNELS_VECTOR_H_
