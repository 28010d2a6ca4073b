// Reading clocks. Thread-safe. Pure parts never include this header.
#ifndef TRAINCTL_RUNTIME_BASE_CLOCK_H_
#define TRAINCTL_RUNTIME_BASE_CLOCK_H_

#include <cstdint>

#include "runtime/base/time.h"

namespace trainctl {

Instant Now();             // CLOCK_BOOTTIME: monotonic, counts suspend
int64_t WallClockNanos();  // CLOCK_REALTIME since 1970, for humans and files; never compared

}  // namespace trainctl

#endif  // TRAINCTL_RUNTIME_BASE_CLOCK_H_
