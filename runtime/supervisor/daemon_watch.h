// PURE: does the daemon that commands us hang? It owes something for every request for a lease; if
// its coordinator gives it nothing, an answer to a question of our own.
#ifndef TRAINCTL_RUNTIME_SUPERVISOR_DAEMON_WATCH_H_
#define TRAINCTL_RUNTIME_SUPERVISOR_DAEMON_WATCH_H_

#include "runtime/base/time.h"

namespace trainctl {

class DaemonWatch {
 public:
  explicit DaemonWatch(Duration lease);

  void Connected(Instant now);
  void Lost();
  void Heard(Instant now);  // anything
  void RequestedLease(Instant now);
  void Asked(Instant now);

  Instant heard() const { return heard_; }  // last; kNever: there is no daemon
  // When to ask whether it lives; kNever: not before something else happens.
  Instant ask_at() const;
  // It hangs unless it is heard of before this: early enough that another one can still renew the
  // lease of the workers, unless that is very short.
  Instant hangs_at() const;

  // One that is slow is better than none.
  static constexpr Duration kShortestPatience = seconds(1);

 private:
  const Duration pause_;     // between request and question
  const Duration patience_;  // between question and verdict
  Instant heard_ = kNever;
  Instant owes_since_ = kNever;
  Instant asked_ = kNever;
};

}  // namespace trainctl

#endif  // TRAINCTL_RUNTIME_SUPERVISOR_DAEMON_WATCH_H_
