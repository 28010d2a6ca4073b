#include "kernels/compute_thread.h"

#include <cblas.h>

#include <cstdlib>

#include "absl/strings/numbers.h"
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace trainctl::ops {

int PrepareComputeThread() {
  const char* text = std::getenv("OMP_NUM_THREADS");
  int threads = 1;
  if (text == nullptr || !absl::SimpleAtoi(text, &threads) || threads < 1) threads = 1;
  openblas_set_num_threads(threads);
#if defined(__x86_64__)
  constexpr unsigned kFlushToZero = 0x8000, kDenormalsAreZero = 0x0040;
  _mm_setcsr(_mm_getcsr() | kFlushToZero | kDenormalsAreZero);
#endif
  return threads;
}

}  // namespace trainctl::ops
