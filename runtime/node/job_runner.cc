#include "runtime/node/job_runner.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/clock.h"
#include "runtime/base/log.h"
#include "runtime/base/places.h"

namespace trainctl {
namespace {

// A shim that cannot live must not be started for ever.
constexpr int kMaxShimDeaths = 20;
constexpr int kMaxFailedStarts = 3;
constexpr Duration kQuick = seconds(10);
constexpr Duration kFirstBackoff = milliseconds(10);
constexpr Duration kMaxBackoff = seconds(1);

v1::NodeMessage LeaseMessage(uint64_t request_id) {
  v1::NodeMessage message;
  message.mutable_lease()->set_request_id(request_id);
  return message;
}

}  // namespace

JobRunner::JobRunner(Loop* loop, NodeFacts facts, Job job, Callbacks callbacks)
    : loop_(loop),
      facts_(std::move(facts)),
      job_(std::move(job)),
      callbacks_(std::move(callbacks)),
      shim_(loop,
            {job_.job_id, job_.job_folder, ShimSocket(job_.job_id), job_.slots, job_.lease,
             job_.gpus},
            facts_.incarnation,
            {[this](frame::Frame frame) { OnShimFrame(std::move(frame)); },
             [this](absl::string_view reason) { OnShimDead(reason); }, [this] { Over(); }}),
      coordinator_(loop, job_.job_id, job_.job_folder, JobSocket(job_.job_id),
                   {[this] {
                      listening_ = true;
                      JoinIfReady();
                      TellIfListening();
                    },
                    [this] { EndJob("the job is over"); },
                    [this](const absl::Status& why) {
                      LogError(why.message());
                      TellListening(why);
                      EndJob("the job has no coordinator");
                    }}),
      pulse_(job_.lease),
      join_(loop, JobSocket(job_.job_id),
            {[this] { return Opening(); }, [this](const v1::NodeOrder& order) { OnOrder(order); },
             [this] { pulse_.Lost(); }}) {}

JobRunner::~JobRunner() {
  loop_->Cancel(pulse_timer_);
  loop_->Cancel(shim_retry_);
}

std::string JobRunner::job_socket() const { return JobSocket(job_.job_id); }

void JobRunner::Begin() {
  // The coordinator first: it takes longer to begin.
  coordinator_.Begin();
  if (ending_) return;
  if (shim_.Adopt().ok()) {
    shim_adopted_ = true;
    return TellIfListening();
  }
  shim_started_ = Now();
  if (const absl::Status status = shim_.Start(); !status.ok()) {
    TellListening(status);
    coordinator_.Kill();
  }
}

void JobRunner::StartShim() {
  shim_started_ = Now();
  if (const absl::Status status = shim_.Start(); !status.ok()) ShimFailed(false, status.message());
}

// Again and again: what kept it from living may pass.
void JobRunner::ShimFailed(bool began, absl::string_view why) {
  LogWarning("the shim of job ", job_.job_id, began ? " ended (" : " could not begin (", why, ")",
             began ? "; its workers are lost" : "");
  shim_deaths_ = Now() - shim_started_ < kQuick ? shim_deaths_ + 1 : 1;
  if (shim_deaths_ > (began ? kMaxShimDeaths : kMaxFailedStarts)) return GiveUp(why);
  const Duration delay = shim_deaths_ == 1 ? Duration(0) : kFirstBackoff * (1 << shim_deaths_);
  shim_retry_ = loop_->After(std::min<Duration>(delay, kMaxBackoff), [this] { StartShim(); });
}

void JobRunner::GiveUp(absl::string_view why) {
  unfit_ = absl::StrCat("start what holds the workers (train-shim): ", why);
  LogError("job ", job_.job_id, " cannot run here: ", unfit_);
  if (told_) return JoinIfReady();
  TellListening(absl::ResourceExhaustedError(unfit_));
  coordinator_.Kill();
}

void JobRunner::TellListening(const absl::Status& status) {
  if (!std::exchange(told_, true)) callbacks_.on_listening(status);
}

// A job whose first shim cannot begin has not begun, and whoever submitted it is told why.
void JobRunner::TellIfListening() {
  if (listening_ && (shim_known_ || shim_adopted_)) TellListening(absl::OkStatus());
}

void JobRunner::JoinIfReady() {
  if (listening_ && (shim_known_ || !unfit_.empty()) && !ending_) join_.Open();
}

std::vector<v1::NodeMessage> JobRunner::Opening() {
  std::vector<v1::NodeMessage> messages = {StateMessage(facts_, job_.slots, unfit_, state_)};
  for (const frame::Frame& frame : state_.Retold()) {
    if (std::optional<v1::NodeMessage> message = ToMessage(frame)) {
      messages.push_back(*std::move(message));
    }
  }
  // A lease counts from when the shim asked, so a late answer is worth having.
  messages.push_back(LeaseMessage(lease_request_));
  Asked();
  return messages;
}

void JobRunner::Asked() {
  pulse_.Asked(Now(), !state_.state().gone);
  ArmPulse();
}

void JobRunner::ArmPulse() {
  loop_->Cancel(pulse_timer_);
  const Instant next = std::min(pulse_.hangs_at(), pulse_.ask_at());
  if (next != kNever) pulse_timer_ = loop_->At(next, [this] { CheckPulse(); });
}

void JobRunner::CheckPulse() {
  if (pulse_.hangs_at() <= Now()) {
    LogWarning("the coordinator of job ", job_.job_id, " does not answer; it is replaced");
    pulse_.Ended();
    return coordinator_.Replace();
  }
  if (pulse_.ask_at() <= Now()) {
    join_.Send(LeaseMessage(0));
    return Asked();
  }
  ArmPulse();
}

void JobRunner::OnShimFrame(frame::Frame frame) {
  if (const auto* state = std::get_if<frame::ShimState>(&frame)) {
    state_.Take(*state);
    if (ending_) return shim_.Send(frame::Release{});
    // A coordinator that knows the state from before is told the new one.
    join_.Close();
    shim_known_ = true;
    JoinIfReady();
    return TellIfListening();
  }
  state_.Apply(frame);
  if (const auto* request = std::get_if<frame::LeaseRequest>(&frame)) {
    lease_request_ = request->request_id;
    if (join_.open()) Asked();
  }
  if (std::optional<v1::NodeMessage> message = ToMessage(frame)) join_.Send(*std::move(message));
}

void JobRunner::OnOrder(const v1::NodeOrder& order) {
  pulse_.Heard();
  if (order.has_lease()) {
    if (order.lease().request_id() == 0) return;
    if (order.lease().request_id() == lease_request_) lease_request_ = 0;
  }
  if (order.has_release()) {
    released_ = true;
    // The coordinator ends when we hang up. Not now: the stream is calling us.
    loop_->Post([this] { join_.Close(); });
  }
  const std::optional<frame::Frame> frame = ToFrame(order);
  if (!frame.has_value()) return;
  if (const auto* start = std::get_if<frame::StartEpoch>(&*frame)) state_.Ordered(*start);
  shim_.Send(*frame);
}

void JobRunner::OnShimDead(absl::string_view reason) {
  if (ending_) return Over();
  if (released_) return;
  const bool began = std::exchange(shim_known_, false);
  lease_request_ = 0;
  state_.ShimDied(Now().ns);
  // The node joins again with the next shim, or to say that there cannot be one.
  join_.Close();
  ShimFailed(began, reason);
}

void JobRunner::EndJob(absl::string_view reason) {
  if (std::exchange(ending_, true)) return;
  LogInfo("job ", job_.job_id, " ends here: ", reason);
  loop_->Cancel(shim_retry_);
  if (!shim_.alive()) return Over();
  shim_.Send(frame::Release{});
}

void JobRunner::Over() {
  if (!std::exchange(over_, true)) callbacks_.on_over();
}

}  // namespace trainctl
