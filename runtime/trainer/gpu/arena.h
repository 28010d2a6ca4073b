// One stretch of memory for a tensor of each parameter, in registration order: the parameters,
// their gradients and what the optimizer keeps for them are arrays of this one layout, so that an
// update or a message between GPUs is about contiguous memory. Backward completes gradients from
// the end of it to the beginning.
#ifndef TRAINCTL_RUNTIME_TRAINER_GPU_ARENA_H_
#define TRAINCTL_RUNTIME_TRAINER_GPU_ARENA_H_

#include <cstdint>
#include <vector>

#include "runtime/trainer/model.h"

namespace trainctl {

struct ArenaSlot {
  int64_t offset = 0;  // in elements, a multiple of kArenaAlignment
  int64_t size = 0;    // of the parameter
  int64_t padded = 0;  // with the zeros that follow it, which stay zero
};

constexpr int64_t kArenaAlignment = 128;

struct ArenaLayout {
  std::vector<ArenaSlot> slots;
  int64_t total = 0;
};

// `least` gives the padded size that a model wants for a parameter; 0: no matter. PURE.
inline ArenaLayout PlanArena(const std::vector<ParameterSpec>& specs,
                             const std::vector<int64_t>& least) {
  ArenaLayout layout;
  for (size_t p = 0; p < specs.size(); ++p) {
    ArenaSlot slot;
    slot.offset = layout.total;
    slot.size = specs[p].size();
    const int64_t wanted = least[p] > slot.size ? least[p] : slot.size;
    slot.padded = (wanted + kArenaAlignment - 1) / kArenaAlignment * kArenaAlignment;
    layout.total += slot.padded;
    layout.slots.push_back(slot);
  }
  return layout;
}

}  // namespace trainctl

#endif  // TRAINCTL_RUNTIME_TRAINER_GPU_ARENA_H_
