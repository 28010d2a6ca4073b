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
  Push({std::max(when, now_), next_order_++, slot});
}

void Timeline::Push(Due due) {
  size_t at = due_.size();
  due_.push_back(due);
  for (; at > 0 && Earlier(due, due_[(at - 1) / 4]); at = (at - 1) / 4) {
    due_[at] = due_[(at - 1) / 4];
  }
  due_[at] = due;
}

Timeline::Due Timeline::Pop() {
  const Due first = due_.front();
  const Due last = due_.back();
  due_.pop_back();
  const size_t size = due_.size();
  size_t at = 0;
  for (size_t child = 1; child < size; child = 4 * at + 1) {
    const size_t end = std::min(child + 4, size);
    size_t least = child;
    for (size_t i = child + 1; i < end; ++i) {
      if (Earlier(due_[i], due_[least])) least = i;
    }
    if (!Earlier(due_[least], last)) break;
    due_[at] = due_[least];
    at = least;
  }
  if (size > 0) due_[at] = last;
  return first;
}

bool Timeline::RunNext(Instant until) {
  if (due_.empty() || due_.front().at > until) {
    now_ = std::max(now_, until);
    return false;
  }
  const Due due = Pop();
  now_ = due.at;
  const Task task = std::move(tasks_[due.slot]);
  tasks_[due.slot] = nullptr;
  free_.push_back(due.slot);
  ++tasks_run_;
  task();
  return true;
}

}  // namespace trainctl::sim
