#include "runtime/supervisor/hang_watch.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace trainctl {
namespace {

constexpr Duration kShortest = seconds(60);
constexpr Duration kLongestStep = seconds(30 * 60);
constexpr int kMedians = 20;
constexpr uint64_t kStepsToJudge = 5;
// A script that only waits still runs a little now and then: less than this share of a core.
constexpr double kIdleShare = 0.01;

bool MayTakeLong(WorkerPhase phase) {
  return phase == WorkerPhase::kInit || phase == WorkerPhase::kCheckpoint ||
         phase == WorkerPhase::kEvaluate || phase == WorkerPhase::kIdle;
}

std::string Seconds(Duration d) { return absl::StrFormat("%.1f s", ToSeconds(d)); }

}  // namespace

Duration HangWatch::Median() const {
  const size_t count = std::min<size_t>(steps_seen_, kSteps);
  std::array<Duration, kSteps> sorted = lengths_;
  const auto middle = sorted.begin() + static_cast<long>(count / 2);
  std::nth_element(sorted.begin(), middle, sorted.begin() + static_cast<long>(count));
  return *middle;
}

Duration HangWatch::StepLimit() const {
  if (limit_ > Duration(0)) return limit_;
  if (steps_seen_ < kStepsToJudge) return kLongestStep;
  return std::clamp(kMedians * Median(), kShortest, kLongestStep);
}

std::string HangWatch::Look(const Seen& seen, Instant now) {
  std::string reason;
  if (stopped_since_ != kNever) {
    const Duration limit = limit_ > Duration(0) ? limit_ : kShortest;
    if (now - stopped_since_ < limit || said_) return {};
    said_ = true;
    return absl::StrCat("has been stopped by a signal for ", Seconds(now - stopped_since_));
  }
  if (seen.phase == WorkerPhase::kNone) {
    if (!JudgesSilence()) return {};
    const bool worked = static_cast<double>(seen.cpu_ns - cpu_ns_) >
                        kIdleShare * static_cast<double>((now - moved_).count());
    if (worked || seen.output_bytes != output_bytes_) {
      cpu_ns_ = seen.cpu_ns;
      output_bytes_ = seen.output_bytes;
      moved_ = now;
      said_ = false;
    }
    if (now - moved_ < limit_ || said_) return {};
    said_ = true;
    return absl::StrCat("has printed nothing and used no processor for ", Seconds(now - moved_));
  }
  if (seen.step != step_) {
    // Steps before the first that we see completed were not timed.
    if (step_at_ != kNever && seen.step > step_) {
      const Duration each = (now - step_at_) / static_cast<int64_t>(seen.step - step_);
      lengths_[steps_seen_++ % kSteps] = each;
    }
    step_at_ = now;
    step_ = seen.step;
    moved_ = now;
    said_ = false;
  }
  if (MayTakeLong(seen.phase)) {
    moved_ = step_at_ = now;
    return {};
  }
  const Duration limit = StepLimit();
  if (now - moved_ < limit || said_) return {};
  said_ = true;
  reason = absl::StrCat("has not completed a step for ", Seconds(now - moved_), ", in phase ",
                        WorkerPhaseName(seen.phase));
  if (steps_seen_ >= kStepsToJudge) {
    absl::StrAppend(&reason, "; its steps take ", Seconds(Median()), " in the median");
  }
  return reason;
}

}  // namespace trainctl
