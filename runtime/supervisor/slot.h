// PURE: the life of one worker in one slot. A table of phase x event says what to do and why; the
// caller does it. A worker that was forked is reaped exactly once, and is never signalled after.
#ifndef TRAINCTL_RUNTIME_SUPERVISOR_SLOT_H_
#define TRAINCTL_RUNTIME_SUPERVISOR_SLOT_H_

#include <cstdint>

#include "runtime/base/time.h"

namespace trainctl {

enum class SlotPhase : uint8_t {
  kEmpty,        // no process yet
  kSpawning,     // forked, the result of exec is not known
  kRunning,      // exec succeeded
  kTerminating,  // asked to end, until the grace is over
  kKilling,      // SIGKILL sent
  kFailing,      // exec failed, the child is about to exit by itself
  kExited,       // reaped, or never forked because fork failed
};
inline constexpr int kSlotPhases = 7;

enum class SlotEvent : uint8_t {
  kForked,
  kForkFailed,
  kExecuted,
  kExecFailed,
  kReaped,         // it ended and its pid is free again
  kStopRequested,  // end it, with a grace
  kKillRequested,  // end it now
  kGraceOver,
};
inline constexpr int kSlotEvents = 8;

enum class SlotAction : uint8_t {
  kNone,
  kTerminate,  // SIGTERM and SIGCONT to its process group
  kKill,       // SIGKILL to its process group
  kReport,     // tell the daemon how it ended
  kRefuse,     // the event cannot happen in this phase: a fault of the caller
};

struct SlotDecision {
  SlotAction action;
  const char* reason;
};

class Slot {
 public:
  // `grace_until` matters for kStopRequested only; a later stop can shorten the grace, not extend
  // it.
  SlotDecision Step(SlotEvent event, Instant grace_until = kNever);

  SlotPhase phase() const { return phase_; }
  // A process exists whose pid is ours: it may be signalled and must be reaped.
  bool HasProcess() const { return phase_ != SlotPhase::kEmpty && phase_ != SlotPhase::kExited; }
  // When to step kGraceOver; kNever unless terminating.
  Instant grace_until() const { return grace_until_; }

 private:
  SlotPhase phase_ = SlotPhase::kEmpty;
  Instant grace_until_ = kNever;
};

const char* SlotPhaseName(SlotPhase phase);

}  // namespace trainctl

#endif  // TRAINCTL_RUNTIME_SUPERVISOR_SLOT_H_
