// PURE: has a worker stopped making progress? Judged from what its page says, and from whether it
// is stopped by a signal; for a worker that writes no page, from its silence.
//
// What counts is the time since the last completed step, without the time spent in phases that may
// take long for good reasons (start-up, checkpoint, evaluation, idle). The limit is what the user
// gave; else 20 times the median step, at least one minute and at most half an hour.
#ifndef TRAINCTL_RUNTIME_SUPERVISOR_HANG_WATCH_H_
#define TRAINCTL_RUNTIME_SUPERVISOR_HANG_WATCH_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "runtime/base/time.h"
#include "runtime/local/page.h"

namespace trainctl {

// One worker of one epoch.
class HangWatch {
 public:
  // `limit` zero: chosen from the length of its steps, and one without a page is never judged.
  HangWatch(Duration limit, Instant now) : limit_(limit), moved_(now), stopped_since_(kNever) {}

  struct Seen {
    WorkerPhase phase = WorkerPhase::kNone;  // kNone: it writes no page
    uint64_t step = 0;
    // Of a worker without a page: bytes of output and processor time so far. If neither moves, it
    // hangs or waits.
    uint64_t output_bytes = 0;
    int64_t cpu_ns = 0;
  };
  // What is wrong, in words that follow "rank N"; empty if nothing is, or if it was said already.
  std::string Look(const Seen& seen, Instant now);
  void Stopped(Instant at) { stopped_since_ = at; }
  void Continued() { stopped_since_ = kNever; }
  // False: Look needs no output_bytes and no cpu_ns.
  bool JudgesSilence() const { return limit_ > Duration(0); }

 private:
  Duration StepLimit() const;
  Duration Median() const;

  static constexpr size_t kSteps = 31;
  Duration limit_;
  Instant moved_;  // last progress, or end of a phase that may take long
  Instant stopped_since_;
  uint64_t step_ = 0;
  uint64_t steps_seen_ = 0;  // since the first that was completed while we looked
  Instant step_at_ = kNever;
  std::array<Duration, kSteps> lengths_{};  // the newest at (steps_seen_ - 1) % kSteps
  uint64_t output_bytes_ = 0;
  int64_t cpu_ns_ = 0;
  bool said_ = false;
};

}  // namespace trainctl

#endif  // TRAINCTL_RUNTIME_SUPERVISOR_HANG_WATCH_H_
