#include "runtime/base/clock.h"

#include <ctime>

namespace trainctl {
namespace {

int64_t Read(clockid_t clock) {
  timespec t;
  clock_gettime(clock, &t);
  return int64_t{t.tv_sec} * 1'000'000'000 + t.tv_nsec;
}

}  // namespace

Instant Now() { return Instant{Read(CLOCK_BOOTTIME)}; }
int64_t WallClockNanos() { return Read(CLOCK_REALTIME); }

}  // namespace trainctl
