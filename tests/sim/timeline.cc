#include "tests/sim/timeline.h"

#include <algorithm>
#include <utility>

namespace trainctl::sim {

void Timeline::At(Instant when, Task task) {
  uint32_t slot = static_cast<uint32_t>(tasks_.size());
  if (free_.empty()) {
    tasks_.push_back(std::move(task));
  } else {
    slot = free_.back();
    free_.pop_back();
    tasks_[slot] = std::move(task);
  }
  due_.push_back({std::max(when, now_), next_order_++, slot});
  std::push_heap(due_.begin(), due_.end(), Later);
}

bool Timeline::RunNext(Instant until) {
  if (due_.empty() || due_.front().at > until) {
    now_ = std::max(now_, until);
    return false;
  }
  std::pop_heap(due_.begin(), due_.end(), Later);
  const Due due = due_.back();
  due_.pop_back();
  now_ = due.at;
  const Task task = std::move(tasks_[due.slot]);
  tasks_[due.slot] = nullptr;
  free_.push_back(due.slot);
  ++tasks_run_;
  task();
  return true;
}

}  // namespace trainctl::sim
