// The true time of a simulation, which no process of it can read, and what happens when.
#ifndef TRAINCTL_TESTS_SIM_TIMELINE_H_
#define TRAINCTL_TESTS_SIM_TIMELINE_H_

#include <cstdint>
#include <functional>
#include <vector>

#include "runtime/base/time.h"

namespace trainctl::sim {

using Task = std::function<void()>;

class Timeline {
 public:
  Instant now() const { return now_; }
  // Tasks of one instant run in the order in which they were given. A time in the past is now.
  void At(Instant when, Task task);
  void After(Duration delay, Task task) { At(now_ + delay, std::move(task)); }
  // Runs the next task. False: none is due by `until`, which is now.
  bool RunNext(Instant until);
  uint64_t tasks_run() const { return tasks_run_; }

 private:
  struct Due {
    Instant at;
    uint64_t order;
    uint32_t slot;
  };
  static bool Earlier(const Due& a, const Due& b) {
    return a.at != b.at ? a.at < b.at : a.order < b.order;
  }
  void Push(Due due);
  Due Pop();  // REQUIRES: there is one

  Instant now_;
  uint64_t next_order_ = 0;
  uint64_t tasks_run_ = 0;
  std::vector<Due> due_;  // a heap in which each has four children: half as deep as one of two
  std::vector<Task> tasks_;
  std::vector<uint32_t> free_;
};

}  // namespace trainctl::sim

#endif  // TRAINCTL_TESTS_SIM_TIMELINE_H_
