// Strong integer types: an epoch is not a rank is not a term.
#ifndef TRAINCTL_RUNTIME_BASE_IDS_H_
#define TRAINCTL_RUNTIME_BASE_IDS_H_

#include <compare>
#include <cstdint>

namespace trainctl {

template <typename Tag>
struct StrongId {
  int64_t value = 0;
  constexpr StrongId() = default;
  constexpr explicit StrongId(int64_t v) : value(v) {}
  constexpr auto operator<=>(const StrongId&) const = default;
  constexpr StrongId Next() const { return StrongId(value + 1); }
};

using Term = StrongId<struct TermTag>;                // one life of a coordinator, from 1
using Epoch = StrongId<struct EpochTag>;              // one membership of the job, from 0
using Incarnation = StrongId<struct IncarnationTag>;  // one life of a daemon; larger is newer
using Step = StrongId<struct StepTag>;                // optimizer steps completed, from 0

}  // namespace trainctl

#endif  // TRAINCTL_RUNTIME_BASE_IDS_H_
