// The end of a job: every line of output is delivered, then everybody is told, then the streams
// close. Each step is bounded, so that no front end that is stopped keeps the job from ending.
#include <utility>

#include "launcher/driver.h"
#include "runtime/base/clock.h"
#include "runtime/base/log.h"
#include "runtime/base/text.h"

namespace trainctl {
namespace {

// Without a byte of output for so long, what is missing is given up.
constexpr Duration kDrainPatience = seconds(5);
constexpr Duration kClosePatience = seconds(5);
// For an owner that has not been told and is about to come: back, where the job was finished before
// this process began, or for the first time, where the job was over before its front end attached.
constexpr Duration kReturnPatience = seconds(5);
// A peer that is still acknowledging what it read when we exit fails to write, and gRPC then drops
// what it has not yet read: the last words.
constexpr Duration kLinger = milliseconds(300);

}  // namespace

void Driver::Do(const FinishJob& action) {
  outcome_ = action.outcome;
  WriteReport();
  ContinueEnding();
}

void Driver::Do(const ReleaseNode& action) {
  // Its shim still holds output that somebody may be reading.
  to_release_.push_back(action.node);
  if (told_finished_) TellFinished();
}

bool Driver::OwnerMayCome() const {
  const bool detached = spec_.orphan_timeout < Duration(0);
  return watchers_.count() == 0 && (finished_before_ || (!detached && !watchers_.any_came()));
}

void Driver::ContinueEnding() {
  if (!outcome_.has_value() || told_finished_) return;
  if (drain_until_ == kNever) {
    drain_until_ = Now() + (OwnerMayCome() ? kReturnPatience : kDrainPatience);
    ArmDrainTimer();
  }
  const bool owner_may_come = OwnerMayCome();
  const bool drained = !owner_may_come && watchers_.OutputDrained();
  if (!drained && Now() < drain_until_) return;
  if (!drained && !owner_may_come) LogWarning("some output was not delivered in time");
  TellFinished();
}

void Driver::OutputCame() {
  if (!outcome_.has_value()) return;
  drain_until_ = Now() + kDrainPatience;
  ContinueEnding();
}

void Driver::ArmDrainTimer() {
  loop_->At(drain_until_, [this] {
    if (told_finished_) return;
    if (Now() < drain_until_) return ArmDrainTimer();
    ContinueEnding();
  });
}

void Driver::TellFinished() {
  v1::NodeOrder release;
  release.mutable_release();
  for (const std::string& node : std::exchange(to_release_, {})) nodes_.Send(node, release);
  if (std::exchange(told_finished_, true)) return;

  v1::JobUpdate update;
  v1::JobFinished* finished = update.mutable_finished();
  finished->set_outcome(OutcomeName(outcome_->kind));
  finished->set_exit_status(outcome_->exit_status);
  finished->set_reason(ValidUtf8(outcome_->reason));
  finished->set_report_path(report_.path());
  finished->set_summary(ValidUtf8(report_.Summary()));
  watchers_.Tell(update);
  callbacks_.on_told();
  closing_ = 2;
  watchers_.FinishAll([this] { StreamsClosed(); });
  nodes_.FinishAll([this] { StreamsClosed(); });
  loop_->After(kClosePatience, [this] { Over(); });
}

void Driver::StreamsClosed() {
  if (--closing_ == 0) loop_->After(kLinger, [this] { Over(); });
}

void Driver::Over() {
  if (!std::exchange(over_, true)) callbacks_.on_over();
}

}  // namespace trainctl
