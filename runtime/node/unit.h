// The service that this daemon is for systemd: what systemd is told of it.
#ifndef TRAINCTL_RUNTIME_NODE_UNIT_H_
#define TRAINCTL_RUNTIME_NODE_UNIT_H_

#include "runtime/base/loop.h"
#include "runtime/node/libsystemd.h"

namespace trainctl {

// Whether systemd, of the system or of a user, started this very process: only then is it ours to
// ask for scopes. A daemon that runs in a scheduler's step must leave its jobs there.
bool IsMainProcessOfUnit();

// Lives on the loop's thread. Where nobody waits to be told, each function does nothing.
class Unit {
 public:
  explicit Unit(Loop* loop);
  ~Unit();
  Unit(const Unit&) = delete;
  Unit& operator=(const Unit&) = delete;

  // Jobs can be submitted. From now on the watchdog is told that we live, by a timer of the loop
  // and by nobody else: a loop that does not come round is what the watchdog is for.
  void Ready();
  void Stopping();

 private:
  void Ping();

  Loop* loop_;
  const Libsystemd* systemd_ = nullptr;  // null: nobody waits to be told
  Duration ping_pause_{0};               // 0: there is no watchdog
  Loop::TimerId ping_{};
};

}  // namespace trainctl

#endif  // TRAINCTL_RUNTIME_NODE_UNIT_H_
