// Memory for a model's activations: one allocation, given out in order, kept until a larger batch
// comes.
#ifndef TRAINCTL_RUNTIME_TRAINER_WORKSPACE_H_
#define TRAINCTL_RUNTIME_TRAINER_WORKSPACE_H_

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <vector>

#include "runtime/base/check.h"

namespace trainctl {

class Workspace {
 public:
  // Arrays of these lengths, each aligned to a cache line, uninitialised. Invalidates earlier ones.
  std::vector<float*> Allocate(const std::vector<int64_t>& lengths) {
    size_t total = 0;
    for (int64_t n : lengths) total += Padded(n);
    void* memory = nullptr;
    CHECK(posix_memalign(&memory, kAlignment, (total + 1) * sizeof(float)) == 0);
    memory_.reset(static_cast<float*>(memory));
    std::vector<float*> arrays;
    float* next = memory_.get();
    for (int64_t n : lengths) {
      arrays.push_back(next);
      next += Padded(n);
    }
    return arrays;
  }

 private:
  static constexpr size_t kAlignment = 64;
  static size_t Padded(int64_t n) { return (static_cast<size_t>(n) + 15) & ~size_t{15}; }
  struct Free {
    void operator()(float* p) const { std::free(p); }
  };
  std::unique_ptr<float, Free> memory_;
};

}  // namespace trainctl

#endif  // TRAINCTL_RUNTIME_TRAINER_WORKSPACE_H_
