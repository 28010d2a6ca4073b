// The one thread of a process that owns its mutable state: epoll over descriptors, timers, signals
// and one mailbox. Everything but Post and Quit must be called on the loop's own thread.
#ifndef TRAINCTL_RUNTIME_BASE_LOOP_H_
#define TRAINCTL_RUNTIME_BASE_LOOP_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "runtime/base/fd.h"
#include "runtime/base/mutex.h"
#include "runtime/base/time.h"

namespace trainctl {

class Loop {
 public:
  using FdCallback = std::function<void(uint32_t epoll_events)>;
  using Task = absl::AnyInvocable<void()>;
  using TimerId = std::pair<Instant, uint64_t>;

  Loop();
  ~Loop();
  Loop(const Loop&) = delete;
  Loop& operator=(const Loop&) = delete;

  // Watches `fd` for `events` (EPOLLIN …, level-triggered). The caller keeps owning the descriptor
  // and must Unwatch it before it closes it. A callback may watch and unwatch anything, itself too.
  void Watch(int fd, uint32_t events, FdCallback callback);
  void Modify(int fd, uint32_t events);
  void Unwatch(int fd);

  // Runs `task` once at `when`. Cancel of a timer that already ran is allowed.
  TimerId At(Instant when, Task task);
  TimerId After(Duration delay, Task task);
  void Cancel(TimerId timer);

  // Blocks `signo` for the whole process (call before threads start) and delivers it here; the
  // argument is the sender's pid, 0 if the kernel sent it.
  void OnSignal(int signo, std::function<void(int sender_pid)> callback);

  // Thread-safe: runs `task` on the loop thread, in order of posting.
  void Post(Task task) ABSL_LOCKS_EXCLUDED(mailbox_mutex_);

  // Runs until Quit; returns its argument.
  int Run();
  void Quit(int status);  // thread-safe

 private:
  void RunTimers();
  int MillisUntilNextTimer() const;
  void DrainMailbox() ABSL_LOCKS_EXCLUDED(mailbox_mutex_);
  void ReadSignals();

  Fd epoll_;
  Fd wakeup_;  // eventfd
  Fd signals_;
  std::map<int, std::shared_ptr<FdCallback>> watched_;
  std::map<TimerId, Task> timers_;
  uint64_t next_timer_ = 0;
  std::map<int, std::function<void(int)>> signal_callbacks_;
  bool quit_ = false;
  int quit_status_ = 0;

  Mutex mailbox_mutex_;
  std::vector<Task> mailbox_ ABSL_GUARDED_BY(mailbox_mutex_);
};

}  // namespace trainctl

#endif  // TRAINCTL_RUNTIME_BASE_LOOP_H_
