// A worker that makes no progress: all nodes are asked what their workers are at, and when they
// have told, or have not in time, it is judged who hangs.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "launcher/coordinator/coordinator_state.h"

namespace trainctl {
namespace {

// Nodes take up to 5 s, for the debuggers.
constexpr Duration kInquiryPatience = seconds(8);

}  // namespace

void CoordinatorState::On(const HangSuspected& event) {
  if (!Live() || epoch_->inquiry) return;
  HangInquiry inquiry{
      {event.rank, event.node, event.step, event.reason}, now_ + kInquiryPatience, {}, {}};
  for (const Node* node : members_.HoldingWorkers()) {
    if (!node->connected) continue;
    inquiry.waiting.insert(node->name);
    Do(DiagnoseWorkers{node->name, epoch()});
  }
  Say(Announce::Level::kWarning,
      absl::StrCat("rank ", event.rank, " on ", event.node, " ", event.reason,
                   "; what every worker is at is written to ", spec_.log_folder, "/", epoch().value,
                   "/RANK/hang.txt"));
  epoch_->inquiry = std::move(inquiry);
  if (epoch_->inquiry->waiting.empty()) EndInquiry();
}

void CoordinatorState::On(const WorkersDiagnosed& event) {
  if (!Live() || !epoch_->inquiry || epoch_->inquiry->waiting.erase(event.node) == 0) return;
  std::vector<RankEvidence>& evidence = epoch_->inquiry->evidence;
  evidence.insert(evidence.end(), event.ranks.begin(), event.ranks.end());
  if (epoch_->inquiry->waiting.empty()) EndInquiry();
}

void CoordinatorState::EndInquiry() {
  const HangInquiry inquiry = *std::exchange(epoch_->inquiry, std::nullopt);
  const HangSuspicion& suspicion = inquiry.suspicion;
  for (const RankEvidence& e : inquiry.evidence) {
    if (e.rank != suspicion.rank || e.stopped || e.step <= suspicion.step) continue;
    return Say(Announce::Level::kInfo,
               absl::StrCat("rank ", e.rank, " goes on; it is at step ", e.step.value));
  }
  HangVerdict verdict = JudgeHang(suspicion, inquiry.evidence, epoch_->formed.nodes);
  Failure failure;
  failure.failure_class = verdict.rank < 0 ? FailureClass::kNetwork : FailureClass::kHang;
  failure.rank = verdict.rank;
  failure.epoch = epoch();
  failure.exit.kind = WorkerExit::Kind::kLost;
  failure.reason = std::move(verdict.reason);
  for (const NodeShare& share : epoch_->formed.nodes) {
    const bool here =
        verdict.rank >= share.first_rank && verdict.rank < share.first_rank + share.workers;
    if (here) failure.node = share.node;
  }
  Condemn(std::move(failure), true);
}

void CoordinatorState::On(const NodeUnfit& event) {
  if (In<Ended>()) return;
  members_.MarkUnfit(event.node, event.reason);
  Failure failure;
  failure.failure_class = FailureClass::kHardware;
  failure.node = event.node;
  failure.epoch = epoch();
  failure.exit.kind = WorkerExit::Kind::kLost;
  failure.reason = absl::StrCat("SIGKILL does not end what is left of epoch ", event.epoch.value,
                                " on ", event.node, ": ", event.reason);
  const int status = FailedExitStatus(spec_, failure, true);
  std::string reason =
      absl::StrCat(failure.reason, "; the node can run no workers until that is gone");
  Finish({Outcome::Kind::kFailed, status, std::move(reason), std::move(failure)});
}

}  // namespace trainctl
