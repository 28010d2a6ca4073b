// The end of a job: every line of output is delivered, then everybody is told, then they hang up.
// Each step is bounded, except by a front end that owns the job, is still connected and reads
// slowly or not at all (a pager, Ctrl-Z): it gets everything. Its death is seen at once.
#include <algorithm>
#include <utility>

#include "launcher/coordinator/verdict.h"
#include "launcher/driver.h"
#include "runtime/base/clock.h"
#include "runtime/base/log.h"
#include "runtime/base/text.h"

namespace trainctl {
namespace {

// Without a byte of output for so long, what is missing is given up.
constexpr Duration kDrainPatience = seconds(5);
// For the others to hang up: nodes that were released, and whoever only looks.
constexpr Duration kClosePatience = seconds(5);
// For an owner that has not been told and is about to come: back, where the job was finished before
// this process began, or for the first time, where the job was over before its front end attached
// (then at least; an orphan time-out that is longer holds here, too).
constexpr Duration kReturnPatience = seconds(5);

}  // namespace

void Driver::Do(const FinishJob& action) {
  outcome_ = action.outcome;
  WriteReport();
  if (const absl::Status status = report_.WritePages(WallClockNanos()); !status.ok()) {
    LogWarning("write the pages of the report: ", status.message());
  }
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
    const Duration first = finished_before_ ? Duration(0) : spec_.orphan_timeout;
    drain_until_ =
        Now() + (OwnerMayCome() ? std::max<Duration>(kReturnPatience, first) : kDrainPatience);
    ArmDrainTimer();
  }
  const bool owner_may_come = OwnerMayCome();
  const bool drained = !owner_may_come && watchers_.OutputDrained();
  if (!drained && Now() < drain_until_) return;
  if (!drained && KeepWaitingForOwner()) {
    drain_until_ = Now() + kDrainPatience;
    return;
  }
  if (!drained && !owner_may_come) LogWarning("some output was not delivered in time");
  TellFinished();
}

bool Driver::KeepWaitingForOwner() {
  if (!watchers_.OwnerIsBehind()) return false;
  if (!std::exchange(told_of_slow_owner_, true)) {
    LogWarning("a front end has not read all of the job's output; it is kept until it has");
  }
  return true;
}

void Driver::OutputCame() {
  if (!outcome_.has_value()) return;
  drain_until_ = Now() + kDrainPatience;
  ContinueEnding();
}

void Driver::WatcherCame() {
  if (drain_until_ != kNever) {  // it was waited for, perhaps for long; its output is not
    drain_until_ = Now() + kDrainPatience;
    ArmDrainTimer();
  }
  ContinueEnding();
}

void Driver::ArmDrainTimer() {
  loop_->At(drain_until_, [this] {
    if (told_finished_) return;
    if (Now() >= drain_until_) ContinueEnding();
    if (!told_finished_) ArmDrainTimer();
  });
}

std::vector<int> Driver::WorkerStatuses(const std::string& node) const {
  std::vector<int> statuses;
  for (const NodeShare& share : shares_) {
    if (share.node != node) continue;
    for (int rank = share.first_rank; rank < share.first_rank + share.workers; ++rank) {
      const auto worker = workers_.find(rank);
      const bool known = worker != workers_.end() && !worker->second.running;
      statuses.push_back(known ? WorkerStatus(worker->second.exit, outcome_->exit_status)
                               : outcome_->exit_status);
    }
  }
  return statuses;
}

void Driver::TellFinished() {
  v1::NodeOrder order;
  v1::Release* release = order.mutable_release();
  release->set_outcome(OutcomeName(outcome_->kind));
  release->set_exit_status(outcome_->exit_status);
  release->set_reason(ValidUtf8(outcome_->reason));
  for (const std::string& node : std::exchange(to_release_, {})) {
    const std::vector<int> statuses = WorkerStatuses(node);
    release->mutable_worker_statuses()->Assign(statuses.begin(), statuses.end());
    nodes_.Send(node, order);
  }
  if (std::exchange(told_finished_, true)) return;

  v1::JobUpdate update;
  v1::JobFinished* finished = update.mutable_finished();
  finished->set_outcome(OutcomeName(outcome_->kind));
  finished->set_exit_status(outcome_->exit_status);
  finished->set_reason(ValidUtf8(outcome_->reason));
  finished->set_report_path(report_.path());
  finished->set_summary(ValidUtf8(report_.Summary()));
  const std::vector<int> statuses = WorkerStatuses(spec_.head);
  finished->mutable_worker_statuses()->Assign(statuses.begin(), statuses.end());
  callbacks_.on_told();
  closing_ = 2;
  // They hang up, not we: whoever is still acknowledging what it read when we exit fails to write,
  // and gRPC then drops what it has not yet read, which is the last words.
  watchers_.SayLast(std::move(update), [this] { StreamsClosed(); });
  nodes_.AwaitHangUp([this] { StreamsClosed(); });
  ArmCloseTimer();
}

void Driver::StreamsClosed() {
  if (--closing_ == 0) Over();
}

void Driver::ArmCloseTimer() {
  loop_->After(kClosePatience, [this] {
    if (KeepWaitingForOwner()) return ArmCloseTimer();
    Over();
  });
}

void Driver::Over() {
  if (!std::exchange(over_, true)) callbacks_.on_over();
}

}  // namespace trainctl
