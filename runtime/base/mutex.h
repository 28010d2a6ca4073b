// A mutex whose waits are conditions, with Clang's thread-safety annotations. Over the standard
// library's, not abseil's: ThreadSanitizer sees what the C library does and cannot see into
// Debian's build of abseil.
#ifndef TRAINCTL_RUNTIME_BASE_MUTEX_H_
#define TRAINCTL_RUNTIME_BASE_MUTEX_H_

#include <chrono>
#include <condition_variable>
#include <mutex>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace trainctl {

class ABSL_LOCKABLE Mutex {
 public:
  void Lock() ABSL_EXCLUSIVE_LOCK_FUNCTION() { mutex_.lock(); }
  void Unlock() ABSL_UNLOCK_FUNCTION() {
    const bool anybody_waits = waiting_ > 0;
    mutex_.unlock();
    if (anybody_waits) changed_.notify_all();
  }

  // REQUIRES: held. Releases it until `condition` holds; conditions read only what this mutex
  // guards.
  void Await(const absl::Condition& condition) ABSL_EXCLUSIVE_LOCKS_REQUIRED(this) {
    Wait([&](std::unique_lock<std::mutex>& lock) {
      changed_.wait(lock, [&] { return condition.Eval(); });
      return true;
    });
  }
  // False if `timeout` passed first.
  bool AwaitWithTimeout(const absl::Condition& condition, absl::Duration timeout)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(this) {
    return Wait([&](std::unique_lock<std::mutex>& lock) {
      return changed_.wait_for(lock, absl::ToChronoNanoseconds(timeout),
                               [&] { return condition.Eval(); });
    });
  }

 private:
  template <typename Body>
  bool Wait(const Body& body) {
    std::unique_lock<std::mutex> lock(mutex_, std::adopt_lock);
    // Waiting gives the mutex up as Unlock does: what this thread changed may end another's wait.
    if (waiting_ > 0) changed_.notify_all();
    ++waiting_;
    const bool result = body(lock);
    --waiting_;
    lock.release();
    return result;
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  int waiting_ = 0;  // guarded by mutex_
};

class ABSL_SCOPED_LOCKABLE MutexLock {
 public:
  explicit MutexLock(Mutex* mutex) ABSL_EXCLUSIVE_LOCK_FUNCTION(mutex) : mutex_(mutex) {
    mutex_->Lock();
  }
  ~MutexLock() ABSL_UNLOCK_FUNCTION() { mutex_->Unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex* const mutex_;
};

}  // namespace trainctl

#endif  // TRAINCTL_RUNTIME_BASE_MUTEX_H_
