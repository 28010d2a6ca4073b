#include "runtime/base/loop.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>

#include "runtime/base/check.h"
#include "runtime/base/clock.h"

namespace trainctl {

Loop::Loop()
    : epoll_(::epoll_create1(EPOLL_CLOEXEC)), wakeup_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  CHECK(epoll_.valid() && wakeup_.valid());
  Watch(wakeup_.get(), EPOLLIN, [this](uint32_t) { DrainMailbox(); });
}

Loop::~Loop() = default;

void Loop::Watch(int fd, uint32_t events, FdCallback callback) {
  epoll_event event{};
  event.events = events;
  event.data.fd = fd;
  CHECK(::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) == 0);
  watched_[fd] = std::make_shared<FdCallback>(std::move(callback));
}

void Loop::Modify(int fd, uint32_t events) {
  epoll_event event{};
  event.events = events;
  event.data.fd = fd;
  CHECK(::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, fd, &event) == 0);
}

void Loop::Unwatch(int fd) {
  if (watched_.erase(fd) != 0) ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
}

Loop::TimerId Loop::At(Instant when, Task task) {
  const TimerId id{when, next_timer_++};
  timers_.emplace(id, std::move(task));
  return id;
}

Loop::TimerId Loop::After(Duration delay, Task task) { return At(Now() + delay, std::move(task)); }

void Loop::Cancel(TimerId timer) { timers_.erase(timer); }

void Loop::OnSignal(int signo, std::function<void(int)> callback) {
  signal_callbacks_[signo] = std::move(callback);
  sigset_t set;
  sigemptyset(&set);
  for (const auto& [number, unused] : signal_callbacks_) sigaddset(&set, number);
  CHECK(::sigprocmask(SIG_BLOCK, &set, nullptr) == 0);
  const bool first = !signals_.valid();
  const int fd = ::signalfd(signals_.get(), &set, SFD_CLOEXEC | SFD_NONBLOCK);
  CHECK(fd >= 0);
  if (first) {
    signals_ = Fd(fd);
    Watch(fd, EPOLLIN, [this](uint32_t) { ReadSignals(); });
  }
}

void Loop::ReadSignals() {
  signalfd_siginfo info;
  while (::read(signals_.get(), &info, sizeof(info)) == sizeof(info)) {
    const auto found = signal_callbacks_.find(static_cast<int>(info.ssi_signo));
    if (found != signal_callbacks_.end()) found->second(static_cast<int>(info.ssi_pid));
  }
}

void Loop::Post(Task task) {
  {
    MutexLock lock(&mailbox_mutex_);
    mailbox_.push_back(std::move(task));
  }
  const uint64_t one = 1;
  // A full counter still wakes the loop, so the result does not matter.
  [[maybe_unused]] const ssize_t n = ::write(wakeup_.get(), &one, sizeof(one));
}

void Loop::DrainMailbox() {
  uint64_t count;
  [[maybe_unused]] const ssize_t n = ::read(wakeup_.get(), &count, sizeof(count));
  std::vector<Task> tasks;
  {
    MutexLock lock(&mailbox_mutex_);
    tasks.swap(mailbox_);
  }
  for (Task& task : tasks) task();
}

int Loop::MillisUntilNextTimer() const {
  if (timers_.empty()) return -1;
  const Duration left = timers_.begin()->first.first - Now();
  if (left.count() <= 0) return 0;
  // Rounded up: waking early would spin until the timer is due.
  return static_cast<int>(std::min<int64_t>(left.count() / 1'000'000 + 1, 60'000));
}

void Loop::RunTimers() {
  const Instant now = Now();
  while (!timers_.empty() && timers_.begin()->first.first <= now && !quit_) {
    auto node = timers_.extract(timers_.begin());
    node.mapped()();
  }
}

int Loop::Run() {
  epoll_event events[64];
  while (!quit_) {
    const int n = ::epoll_wait(epoll_.get(), events, 64, MillisUntilNextTimer());
    CHECK(n >= 0 || errno == EINTR);
    for (int i = 0; i < n && !quit_; ++i) {
      // Looked up at each step: an earlier callback of this round may have unwatched it.
      const auto found = watched_.find(events[i].data.fd);
      if (found == watched_.end()) continue;
      const std::shared_ptr<FdCallback> callback = found->second;
      (*callback)(events[i].events);
    }
    RunTimers();
  }
  return quit_status_;
}

void Loop::Quit(int status) {
  Post([this, status] {
    quit_ = true;
    quit_status_ = status;
  });
}

}  // namespace trainctl
