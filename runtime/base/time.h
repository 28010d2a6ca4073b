// Instants and durations for code that must not read a clock itself. Reading one: clock.h.
#ifndef TRAINCTL_RUNTIME_BASE_TIME_H_
#define TRAINCTL_RUNTIME_BASE_TIME_H_

#include <chrono>
#include <compare>
#include <cstdint>
#include <limits>

namespace trainctl {

using Duration = std::chrono::nanoseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;

// A point on this machine's CLOCK_BOOTTIME, in nanoseconds. Comparable only with instants of the
// same machine.
struct Instant {
  int64_t ns = 0;
  constexpr auto operator<=>(const Instant&) const = default;
  constexpr Instant operator+(Duration d) const { return Instant{ns + d.count()}; }
  constexpr Instant operator-(Duration d) const { return Instant{ns - d.count()}; }
  constexpr Duration operator-(Instant other) const { return Duration(ns - other.ns); }
};
inline constexpr Instant kNever{std::numeric_limits<int64_t>::max()};

constexpr double ToSeconds(Duration d) { return static_cast<double>(d.count()) * 1e-9; }
constexpr double ToMillis(Duration d) { return static_cast<double>(d.count()) * 1e-6; }
constexpr Duration FromSeconds(double s) { return Duration(static_cast<int64_t>(s * 1e9)); }

}  // namespace trainctl

#endif  // TRAINCTL_RUNTIME_BASE_TIME_H_
