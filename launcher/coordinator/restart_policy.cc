#include "launcher/coordinator/restart_policy.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace trainctl {
namespace {

constexpr Duration kFirstDelay = seconds(1);
constexpr Duration kLongestDelay = seconds(30);
// A script that reports no steps counts as working, as far as the back-off goes, after this long.
constexpr Duration kSettled = seconds(10);
// A node that failed so often within the window is left out if others suffice.
constexpr int kFailuresToBlame = 2;

// Failures of the script itself; all others are not its fault and cost it nothing.
bool SpendsBudget(FailureClass failure_class) {
  return failure_class == FailureClass::kWorker || failure_class == FailureClass::kOutOfMemory ||
         failure_class == FailureClass::kGpuOutOfMemory || failure_class == FailureClass::kHang;
}

bool ReachedNewStep(const EpochEnd& end) {
  return end.last_step > std::max(end.resume_step, Step(0));
}

// A damaged checkpoint is never tried twice, so epochs that find one cannot go on for ever.
bool Progressed(const EpochEnd& end, bool steps_are_reported) {
  if (end.found_damage) return true;
  return steps_are_reported ? ReachedNewStep(end) : end.ran >= kSettled;
}

Duration BackOff(int without_progress) {
  if (without_progress <= 1) return Duration(0);
  Duration delay = kFirstDelay;
  for (int i = 2; i < without_progress && delay < kLongestDelay; ++i) delay *= 2;
  return std::min(delay, kLongestDelay);
}

RestartDecision Never(bool mendable, std::string reason) {
  return {false, Duration(0), mendable, std::move(reason)};
}

}  // namespace

void RestartPolicy::Shift(Duration offset, Instant now) {
  for (EpochEnd& end : restarts_) end.at = std::min(end.at + offset, now);
}

int RestartPolicy::SpentOfBudget() const {
  return static_cast<int>(std::count_if(restarts_.begin(), restarts_.end(), [](const EpochEnd& e) {
    return SpendsBudget(e.failure_class);
  }));
}

bool RestartPolicy::StepsAreReported(const EpochEnd& end) const {
  return ReachedNewStep(end) || std::any_of(restarts_.begin(), restarts_.end(), ReachedNewStep);
}

int RestartPolicy::EndsWithoutProgress(const EpochEnd& end) const {
  const bool reported = StepsAreReported(end);
  if (Progressed(end, reported)) return 0;
  const auto last = std::find_if(restarts_.rbegin(), restarts_.rend(),
                                 [&](const EpochEnd& e) { return Progressed(e, reported); });
  return 1 + static_cast<int>(last - restarts_.rbegin());
}

std::vector<RestartPolicy::Blame> RestartPolicy::Blamed(const JobSpec& spec, Instant now) const {
  struct Count {
    int failures = 0;
    int by_script = 0;
  };
  std::map<std::string, Count> counts;
  for (const EpochEnd& end : restarts_) {
    const bool says_nothing_of_it = end.node.empty() ||
                                    end.failure_class == FailureClass::kPreempted ||
                                    end.failure_class == FailureClass::kUserError;
    if (says_nothing_of_it || end.at + spec.restart_window <= now) continue;
    ++counts[end.node].failures;
    if (SpendsBudget(end.failure_class)) ++counts[end.node].by_script;
  }
  std::vector<Blame> blamed;
  for (const auto& [node, count] : counts) {
    if (count.failures < kFailuresToBlame) continue;
    blamed.push_back({node, count.by_script == count.failures,
                      absl::StrFormat("it failed %d times within %.0f s", count.failures,
                                      ToSeconds(spec.restart_window))});
  }
  return blamed;
}

bool RestartPolicy::Forgive(const std::string& node) {
  bool any = false;
  for (EpochEnd& end : restarts_) {
    if (end.node != node) continue;
    end.node.clear();
    any = true;
  }
  return any;
}

RestartDecision RestartPolicy::Decide(const JobSpec& spec, const EpochEnd& end) {
  if (end.failure_class == FailureClass::kUserError) {
    return Never(false, "no restart can help");
  }
  if (end.failure_class == FailureClass::kDisk && !end.found_damage) {
    return Never(true, "a restart makes no room on the disk");
  }
  const bool spends = SpendsBudget(end.failure_class);
  const int spent = SpentOfBudget();
  if (spends && spec.max_restarts == 0) {
    return Never(true, "no restarts were asked for (--max-restarts)");
  }
  if (spends && spent >= spec.max_restarts) {
    return Never(true, absl::StrCat(spent, " of ", spec.max_restarts,
                                    " restarts are used (--max-restarts)"));
  }
  const auto recent = std::count_if(restarts_.begin(), restarts_.end(), [&](const EpochEnd& e) {
    return e.at + spec.restart_window > end.at;
  });
  if (recent >= spec.window_restarts) {
    return Never(true, absl::StrFormat("%d restarts within %.0f s are too many (--restart-window)",
                                       recent, ToSeconds(spec.restart_window)));
  }
  // A script that reports no steps may well make progress that nobody sees; the budget and the
  // window bound it instead.
  const int without_progress = EndsWithoutProgress(end);
  if (StepsAreReported(end) && without_progress >= spec.no_progress_epochs) {
    return Never(false, absl::StrCat(without_progress,
                                     " epochs in a row ended without a step beyond the recovery "
                                     "point"));
  }
  RestartDecision decision;
  decision.restart = true;
  decision.delay = BackOff(without_progress);
  decision.reason = spends ? absl::StrCat("restart ", spent + 1, " of ", spec.max_restarts)
                           : absl::StrCat("a restart that costs nothing of the budget (",
                                          FailureClassName(end.failure_class), ")");
  if (decision.delay > Duration(0)) {
    absl::StrAppendFormat(&decision.reason, ", in %.0f s", ToSeconds(decision.delay));
  }
  restarts_.push_back(end);
  return decision;
}

}  // namespace trainctl
