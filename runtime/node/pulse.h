// Whether a job's coordinator is alive as its daemon sees it. The coordinator owes an answer to
// every request for a lease, so that while workers run this costs no message of its own. PURE.
#ifndef TRAINCTL_RUNTIME_NODE_PULSE_H_
#define TRAINCTL_RUNTIME_NODE_PULSE_H_

#include "runtime/base/time.h"

namespace trainctl {

// Not thread-safe.
class Pulse {
 public:
  explicit Pulse(Duration lease) : lease_(lease) {}

  // A request was sent on a living stream. `workers_live`: their lease ends `lease` after the last
  // request that was answered, which is up to a third of it before this one.
  void Asked(Instant now, bool workers_live);
  void Heard() { hangs_at_ = kNever; }  // it sent something
  void Lost();                          // the stream ended: nothing is owed on it

  // It hangs unless it is heard of before this; early enough that one in its place can still answer
  // before the workers' lease ends. kNever: it owes nothing.
  Instant hangs_at() const { return hangs_at_; }
  // When to send a request of our own, because the shim has sent none for long; kNever: no stream.
  Instant ask_at() const { return ask_at_; }
  // It was ended for hanging. The next one gets twice the time: what blocked it may block that one
  // too, and a coordinator that is slow is better than none.
  void Ended();

 private:
  const Duration lease_;
  int scale_ = 1;
  Instant hangs_at_ = kNever;
  Instant ask_at_ = kNever;
};

}  // namespace trainctl

#endif  // TRAINCTL_RUNTIME_NODE_PULSE_H_
