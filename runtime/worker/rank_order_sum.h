// Sums over ranks, in rank order.
#ifndef TRAINCTL_RUNTIME_WORKER_RANK_ORDER_SUM_H_
#define TRAINCTL_RUNTIME_WORKER_RANK_ORDER_SUM_H_

#include <cstddef>
#include <vector>

namespace trainctl {

// out[i] = ((sources[0][i] + sources[1][i]) + sources[2][i]) + …; `out` may be one of the sources.
// Float or double.
template <typename T>
void SumInRankOrder(const std::vector<const T*>& sources, T* out, size_t count);

}  // namespace trainctl

#endif  // TRAINCTL_RUNTIME_WORKER_RANK_ORDER_SUM_H_
