#include "runtime/worker/rank_order_sum.h"

#include <algorithm>
#include <cstring>

namespace trainctl {

template <typename T>
void SumInRankOrder(const std::vector<const T*>& sources, T* out, size_t count) {
  const T* first = sources[0];
  if (sources.size() == 1) {
    if (out != first) std::memcpy(out, first, count * sizeof(T));
    return;
  }
  const T* second = sources[1];
  if (sources.size() == 2) {
    for (size_t i = 0; i < count; ++i) out[i] = first[i] + second[i];
    return;
  }
  // A block stays in the first-level cache while the ranks are added one after the other.
  constexpr size_t kBlock = 1024;
  T sum[kBlock];
  for (size_t begin = 0; begin < count; begin += kBlock) {
    const size_t n = std::min(kBlock, count - begin);
    for (size_t i = 0; i < n; ++i) sum[i] = first[begin + i] + second[begin + i];
    for (size_t r = 2; r < sources.size(); ++r) {
      const T* source = sources[r] + begin;
      for (size_t i = 0; i < n; ++i) sum[i] += source[i];
    }
    std::memcpy(out + begin, sum, n * sizeof(T));
  }
}

template void SumInRankOrder<float>(const std::vector<const float*>&, float*, size_t);
template void SumInRankOrder<double>(const std::vector<const double*>&, double*, size_t);

}  // namespace trainctl
