#include "tests/sim/process.h"

#include <algorithm>

namespace trainctl::sim {
namespace {

constexpr int kMostDriftPpm = 200;
constexpr int64_t kMillion = 1'000'000;

}  // namespace

Machine::Machine(Timeline* timeline, Random* random) : timeline_(timeline), random_(random) {
  Boot();
}

void Machine::Boot() {
  drift_ppm_ = random_->Int(-kMostDriftPpm, kMostDriftPpm);
  true_origin_ = timeline_->now();
  local_origin_ = Instant{} + random_->Between(seconds(10), seconds(1'000'000));
}

Instant Machine::Now() const {
  if (clock_stands_) return local_origin_;
  const Duration passed = timeline_->now() - true_origin_;
  return local_origin_ + passed + passed * drift_ppm_ / kMillion;
}

Instant Machine::TrueTimeOf(Instant local) const {
  const Duration left = local - Now();
  if (left <= Duration(0)) return timeline_->now();
  return timeline_->now() + left - left * drift_ppm_ / kMillion + Duration(1);
}

void Machine::Pause(bool clock_stands) {
  if (!runs()) return;
  local_origin_ = Now();
  true_origin_ = timeline_->now();
  paused_ = true;
  clock_stands_ = clock_stands;
}

void Machine::Resume() {
  if (!paused_) return;
  if (clock_stands_) true_origin_ = timeline_->now();
  paused_ = false;
  clock_stands_ = false;
  for (Process* process : processes_) process->RunParked();
}

void Machine::PowerOff() {
  paused_ = false;
  clock_stands_ = false;
  powered_ = false;
  for (Process* process : processes_) process->Kill();
}

void Machine::PowerOn() {
  if (powered_) return;
  powered_ = true;
  Boot();
}

void Process::Kill() {
  alive_ = false;
  stopped_ = false;
  pending_.clear();
  free_.clear();
  parked_.clear();
}

void Process::Continue() {
  if (!stopped_) return;
  stopped_ = false;
  RunParked();
}

Process::Timer Process::Keep(Instant when, Task task) {
  Timer timer{static_cast<uint32_t>(pending_.size()), next_life_++};
  if (free_.empty()) {
    pending_.emplace_back();
  } else {
    timer.slot = free_.back();
    free_.pop_back();
  }
  pending_[timer.slot] = {std::move(task), when, timer.life};
  return timer;
}

Process::Timer Process::At(Instant local, Task task) {
  if (!alive_) return {};
  const Timer timer = Keep(local, std::move(task));
  timeline_->At(machine_->TrueTimeOf(local), [this, timer] { Fire(timer); });
  return timer;
}

void Process::Cancel(Timer* timer) {
  const Timer old = std::exchange(*timer, Timer{});
  if (old.life == 0 || old.slot >= pending_.size()) return;
  Pending& pending = pending_[old.slot];
  if (pending.life != old.life) return;
  pending = Pending{};
  free_.push_back(old.slot);
}

bool Process::Postpone(const Timer& timer, Instant local) {
  if (timer.life == 0 || timer.slot >= pending_.size()) return false;
  Pending& pending = pending_[timer.slot];
  if (pending.life != timer.life || pending.when > local) return false;
  pending.when = local;  // Fire sees that it came too early
  return true;
}

void Process::Deliver(Task task) {
  if (!alive_) return;
  const bool first = parked_.empty() && resumed_at_ != timeline_->now();
  if (runs() && first) return task();
  const Timer timer = Keep(Instant{}, std::move(task));
  if (runs()) {
    timeline_->At(timeline_->now(), [this, timer] { Fire(timer); });  // after what was parked
  } else {
    parked_.push_back(timer);
  }
}

void Process::Fire(Timer timer) {
  if (timer.slot >= pending_.size() || pending_[timer.slot].life != timer.life) return;
  if (!runs()) {
    parked_.push_back(timer);
    return;
  }
  Pending& pending = pending_[timer.slot];
  if (Now() < pending.when) {  // postponed, or the clock stood still meanwhile
    timeline_->At(machine_->TrueTimeOf(pending.when), [this, timer] { Fire(timer); });
    return;
  }
  const Task task = std::move(pending.task);
  pending = Pending{};
  free_.push_back(timer.slot);
  task();
}

void Process::RunParked() {
  if (!runs() || parked_.empty()) return;
  resumed_at_ = timeline_->now();
  for (const Timer& timer : std::exchange(parked_, {})) {
    timeline_->At(timeline_->now(), [this, timer] { Fire(timer); });
  }
}

}  // namespace trainctl::sim
