#include "runtime/node/job_runner.h"

#include <optional>
#include <utility>

#include "runtime/base/clock.h"
#include "runtime/base/log.h"
#include "runtime/base/places.h"

namespace trainctl {
namespace {

// A shim that cannot live must not be started for ever.
constexpr int kMaxShimDeaths = 20;

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
                      TellListening(absl::OkStatus());
                    },
                    [this] { EndJob("the job is over"); },
                    [this](const absl::Status& why) {
                      LogError(why.message());
                      TellListening(why);
                      EndJob("the job has no coordinator");
                    }}),
      join_(
          loop, JobSocket(job_.job_id),
          {[this] { return Opening(); }, [this](const v1::NodeOrder& order) { OnOrder(order); }}) {}

std::string JobRunner::job_socket() const { return JobSocket(job_.job_id); }

void JobRunner::Begin() {
  // The coordinator first: it takes longer to begin.
  coordinator_.Begin();
  if (ending_ || shim_.Adopt().ok()) return;
  if (const absl::Status status = StartShim(); !status.ok()) {
    TellListening(status);
    coordinator_.Kill();
  }
}

absl::Status JobRunner::StartShim() {
  const absl::Status status = shim_.Start();
  if (!status.ok()) {
    LogError("start the shim of job ", job_.job_id, ": ", status.message());
  }
  return status;
}

void JobRunner::TellListening(const absl::Status& status) {
  if (!std::exchange(told_, true)) callbacks_.on_listening(status);
}

void JobRunner::JoinIfReady() {
  if (listening_ && shim_known_ && !ending_) join_.Open();
}

std::vector<v1::NodeMessage> JobRunner::Opening() const {
  std::vector<v1::NodeMessage> messages = {StateMessage(facts_, job_.slots, state_)};
  for (const frame::Frame& frame : state_.Retold()) {
    if (std::optional<v1::NodeMessage> message = ToMessage(frame)) {
      messages.push_back(*std::move(message));
    }
  }
  return messages;
}

void JobRunner::OnShimFrame(frame::Frame frame) {
  if (const auto* state = std::get_if<frame::ShimState>(&frame)) {
    state_.Take(*state);
    if (ending_) return shim_.Send(frame::Release{});
    // A coordinator that knows the state from before is told the new one.
    join_.Close();
    shim_known_ = true;
    return JoinIfReady();
  }
  state_.Apply(frame);
  if (std::optional<v1::NodeMessage> message = ToMessage(frame)) join_.Send(*std::move(message));
}

void JobRunner::OnOrder(const v1::NodeOrder& order) {
  if (order.has_release()) {
    released_ = true;
    // The coordinator ends when we hang up. Not now: the stream is calling us.
    loop_->Post([this] { join_.Close(); });
  }
  if (std::optional<frame::Frame> frame = ToFrame(order)) shim_.Send(*frame);
}

void JobRunner::OnShimDead(absl::string_view reason) {
  if (ending_) return Over();
  if (released_) return;
  LogWarning("the shim of job ", job_.job_id, " ended (", reason, "); its workers are lost");
  shim_known_ = false;
  state_.ShimDied(Now().ns);
  join_.Close();
  // Without a shim the node does not join again, and the coordinator judges that it is lost.
  if (++shim_deaths_ <= kMaxShimDeaths) StartShim().IgnoreError();
}

void JobRunner::EndJob(absl::string_view reason) {
  if (std::exchange(ending_, true)) return;
  LogInfo("job ", job_.job_id, " ends here: ", reason);
  if (!shim_.alive()) return Over();
  shim_.Send(frame::Release{});
}

void JobRunner::Over() {
  if (!std::exchange(over_, true)) callbacks_.on_over();
}

}  // namespace trainctl
