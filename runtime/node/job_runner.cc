#include "runtime/node/job_runner.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "launcher/coordinator/worker_env.h"
#include "runtime/base/clock.h"
#include "runtime/base/log.h"
#include "runtime/base/places.h"
#include "runtime/base/text.h"
#include "runtime/topology/xid.h"

namespace trainctl {
namespace {

// A shim that cannot live must not be started for ever.
constexpr int kMaxShimDeaths = 20;
constexpr int kMaxFailedStarts = 3;
constexpr Duration kQuickShimDeath = seconds(10);
constexpr Duration kFirstShimPause = milliseconds(10);
constexpr Duration kLongestShimPause = seconds(1);
// How long a coordinator on another node may be away: its machine may be starting again.
constexpr Duration kLostPatience = seconds(60);
// Between one refusal by our own coordinator and the next try.
constexpr Duration kRefusedPause = seconds(5);
// How long a node that leaves tries to tell the coordinator before its workers are ended.
constexpr Duration kLeavePatience = seconds(1);
// Bytes of output in one message.
constexpr size_t kMostGathered = 256 << 10;

// Of requests by which this daemon keeps the node's place while an order is held; the shim's own
// count from 1.
constexpr uint64_t kHeldRequest = uint64_t{1} << 63;

void Bind(const WorkerBinding& binding, frame::Launch* launch) {
  BindOwn(binding, launch->local_rank, &launch->env);
  const auto index = static_cast<size_t>(launch->local_rank);
  if (launch->local_rank < 0 || index >= binding.workers.size()) return;
  launch->cpus.assign(binding.workers[index].cpus.begin(), binding.workers[index].cpus.end());
  launch->numa = binding.workers[index].numa;
}

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
      shim_(
          loop,
          {job_.job_id, job_.folder, job_.shim_socket, job_.slots, job_.lease, job_.gpus,
           job_.scope},
          facts_.incarnation,
          {[this](frame::Frame frame) { OnShimFrame(std::move(frame)); }, [this] { SendOutput(); },
           [this](absl::string_view reason) { OnShimDead(reason); }, [this] { Over(); }}),
      pulse_(job_.lease),
      join_(loop, job_.coordinator.value_or(ServiceAddress::Unix(JobSocket(job_.job_id))),
            {[this] { return Opening(); }, [this](const v1::NodeOrder& order) { OnOrder(order); },
             [this](const absl::Status& why) { OnStreamLost(why); },
             [this](const absl::Status& why) { OnRefused(why); }}),
      prober_(loop, facts_.machine, [this](const v1::AddressesReached& reached) {
        v1::NodeMessage message;
        *message.mutable_reached() = reached;
        join_.Send(std::move(message));
      }) {
  if (job_.coordinator.has_value()) return;
  coordinator_ = std::make_unique<CoordinatorProcess>(
      loop, job_.job_id, job_.folder, JobSocket(job_.job_id), job_.scope,
      CoordinatorProcess::Callbacks{[this] {
                                      listening_ = true;
                                      JoinIfReady();
                                      TellIfListening();
                                    },
                                    [this] { EndJob("the job is over"); },
                                    [this](const absl::Status& why) {
                                      LogError(why.message());
                                      TellListening(why);
                                      EndJob("the job has no coordinator");
                                    }});
}

JobRunner::~JobRunner() {
  loop_->Cancel(pulse_timer_);
  loop_->Cancel(shim_retry_);
  loop_->Cancel(rejoin_timer_);
  loop_->Cancel(leave_timer_);
  loop_->Cancel(held_timer_);
}

std::string JobRunner::job_socket() const { return JobSocket(job_.job_id); }

void JobRunner::Begin() {
  heard_at_ = Now();
  // The coordinator first: it takes longer to begin.
  if (coordinator_ != nullptr) {
    coordinator_->Begin();
  } else {
    listening_ = true;
  }
  if (ending_) return;
  if (shim_.Adopt().ok()) {
    shim_adopted_ = true;
    WatchGpus(false);
    return TellIfListening();
  }
  shim_started_ = Now();
  WatchGpus(true);
  const absl::Status status = shim_.Start();
  if (status.ok()) return;
  if (coordinator_ == nullptr) return ShimFailed(false, status.message());
  TellListening(status);
  coordinator_->Kill();
}

void JobRunner::WatchGpus(bool fresh) {
  if (job_.binding.workers.empty()) return;
  gpus_ = std::make_unique<GpuWatch>(
      loop_, job_.job_id, job_.binding.workers, fresh,
      GpuWatch::Callbacks{[this](const GpuError& error) { OnGpuError(error); },
                          [this](const std::string& text) { SendNote(text); }});
}

void JobRunner::StartShim() {
  shim_started_ = Now();
  if (const absl::Status status = shim_.Start(); !status.ok()) ShimFailed(false, status.message());
}

// Again and again: what kept it from living may pass.
void JobRunner::ShimFailed(bool began, absl::string_view why) {
  LogWarning("the shim of job ", job_.job_id, began ? " ended (" : " could not begin (", why, ")",
             began ? "; its workers are lost" : "");
  shim_deaths_ = Now() - shim_started_ < kQuickShimDeath ? shim_deaths_ + 1 : 1;
  if (shim_deaths_ > (began ? kMaxShimDeaths : kMaxFailedStarts)) return GiveUp(why);
  const Duration delay = shim_deaths_ == 1 ? Duration(0) : kFirstShimPause * (1 << shim_deaths_);
  shim_retry_ = loop_->After(std::min<Duration>(delay, kLongestShimPause), [this] { StartShim(); });
}

void JobRunner::GiveUp(absl::string_view why) {
  unfit_ = absl::StrCat("start what holds the workers (train-shim): ", why);
  LogError("job ", job_.job_id, " cannot run here: ", unfit_);
  if (told_ || coordinator_ == nullptr) return JoinIfReady();
  TellListening(absl::ResourceExhaustedError(unfit_));
  coordinator_->Kill();
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
    LogWarning("the coordinator of job ", job_.job_id, " does not answer",
               coordinator_ != nullptr ? "; it is replaced" : "; dialling it again");
    pulse_.Ended();
    if (coordinator_ != nullptr) return coordinator_->Replace();
    // Its own daemon sees to it; here it may be the way to it that is dead.
    join_.Close();
    return JoinIfReady();
  }
  if (pulse_.ask_at() <= Now()) {
    join_.Send(LeaseMessage(0));
    return Asked();
  }
  ArmPulse();
}

// What one read of the shim's connection brought goes on in one message.
void JobRunner::GatherOutput(frame::Output output) {
  output_bytes_ += output.bytes.size();
  Fill(std::move(output), output_.add_outputs());
  if (output_bytes_ >= kMostGathered) SendOutput();
}

void JobRunner::SendOutput() {
  if (output_.outputs().empty()) return;
  v1::NodeMessage message;
  message.mutable_output()->Swap(&output_);
  output_bytes_ = 0;
  join_.Send(std::move(message));
}

void JobRunner::OnShimFrame(frame::Frame frame) {
  if (auto* output = std::get_if<frame::Output>(&frame)) return GatherOutput(std::move(*output));
  SendOutput();  // what comes after output is told after it
  if (const auto* state = std::get_if<frame::ShimState>(&frame)) {
    state_.Take(*state);
    if (ending_) return shim_.Send(frame::Release{});
    // A coordinator that knows the state from before is told the new one.
    join_.Close();
    shim_known_ = true;
    JoinIfReady();
    return TellIfListening();
  }
  if (std::holds_alternative<frame::Ping>(frame)) return shim_.Send(frame::Pong{});
  state_.Apply(frame);
  if (const auto* request = std::get_if<frame::LeaseRequest>(&frame)) {
    lease_request_ = request->request_id;
    if (join_.open()) Asked();
  }
  if (std::optional<v1::NodeMessage> message = ToMessage(frame)) join_.Send(*std::move(message));
}

void JobRunner::OnOrder(const v1::NodeOrder& order) {
  pulse_.Heard();
  heard_at_ = Now();
  // Not now: the stream is calling us.
  if (leaving_) loop_->Post([this] { EndJob("this node leaves it"); });
  if (standing_.standing() == v1::PartUpdate::JOINING) Stand(v1::PartUpdate::JOINED, "");
  if (order.has_probe()) return prober_.Begin(order.probe());
  if (order.has_vanish()) {
    shim_.KillAtOnce();
    return callbacks_.on_vanish();
  }
  if (order.has_lease()) {
    if (order.lease().request_id() == 0) return;
    if (order.lease().request_id() == kHeldRequest) {
      if (!order.lease().granted()) SendHeld();  // the shim asks itself, and is told the same
      return;
    }
    if (order.lease().request_id() == lease_request_) lease_request_ = 0;
  }
  if (order.has_release()) {
    released_ = true;
    // The coordinator ends when we hang up. Not now: the stream is calling us.
    loop_->Post([this] { join_.Close(); });
    if (coordinator_ == nullptr) {
      standing_.set_outcome(order.release().outcome());
      standing_.set_exit_status(order.release().exit_status());
      *standing_.mutable_worker_statuses() = order.release().worker_statuses();
      Stand(v1::PartUpdate::OVER, order.release().reason());
      return EndJob("the job is over");
    }
  }
  for (const v1::OutputFrom& from : order.output().logs()) shim_.Send(ToFrame(from));
  std::optional<frame::Frame> frame = ToFrame(order);
  if (!frame.has_value()) return;
  if (auto* start = std::get_if<frame::StartEpoch>(&*frame)) {
    if (!job_.env.empty()) start->env = ForOwnNode(start->env, job_.env);
    if (!job_.cwd.empty()) start->cwd = job_.cwd;
    AddDefaults({order.start().defaults().begin(), order.start().defaults().end()}, &start->env);
    BindCommon(job_.binding, &start->env);
    for (frame::Launch& launch : start->workers) Bind(job_.binding, &launch);
    state_.Ordered(*start);
    return StartWhenFree(std::move(*start));
  }
  if (std::holds_alternative<frame::StopEpoch>(*frame)) SendHeld();
  shim_.Send(*frame);
}

// What the old workers had on the GPUs may come back later than they end, and new ones would find
// too little.
void JobRunner::StartWhenFree(frame::StartEpoch start) {
  if (gpus_ == nullptr) return shim_.Send(start);
  if (held_.has_value() && held_->epoch == start.epoch) return;
  held_ = std::move(start);
  const int64_t epoch = held_->epoch;
  KeepPlace();
  gpus_->AwaitFree([this, epoch] {
    if (held_.has_value() && held_->epoch == epoch) SendHeld();
  });
}

// A node that says nothing for a lease is lost.
void JobRunner::KeepPlace() {
  if (!held_.has_value()) return;
  join_.Send(LeaseMessage(kHeldRequest));
  held_timer_ = loop_->After(job_.lease / 3, [this] { KeepPlace(); });
}

void JobRunner::SendHeld() {
  if (!held_.has_value()) return;
  loop_->Cancel(held_timer_);
  shim_.Send(*std::exchange(held_, std::nullopt));
}

void JobRunner::OnGpuError(const GpuError& error) {
  v1::NodeMessage message;
  v1::GpuFault* fault = message.mutable_gpu_fault();
  fault->set_epoch(state_.Told().epoch);
  fault->set_xid(error.xid);
  fault->set_local_rank(-1);
  for (size_t i = 0; i < job_.binding.workers.size(); ++i) {
    if (job_.binding.workers[i].uuid != error.uuid) continue;
    fault->set_local_rank(static_cast<int>(i));
    fault->set_device(job_.binding.workers[i].device);
  }
  const Xid xid = FindXid(error.xid);
  LogWarning("job ", job_.job_id, ": ", fault->device(), " (", error.uuid, "): ", DescribeXid(xid));
  join_.Send(std::move(message));
  // Also to a coordinator that comes later.
  if (xid.meaning == XidMeaning::kUnfit && unfit_.empty()) {
    unfit_ = absl::StrCat(fault->device(), ": ", DescribeXid(xid));
  }
}

void JobRunner::SendNote(const std::string& text) {
  LogInfo("job ", job_.job_id, ": ", text);
  v1::NodeMessage message;
  message.mutable_note()->set_epoch(state_.Told().epoch);
  message.mutable_note()->set_rank(-1);
  message.mutable_note()->set_text(absl::StrCat("node ", facts_.node, " ", text));
  join_.Send(std::move(message));
}

void JobRunner::OnShimDead(absl::string_view reason) {
  if (ending_) return Over();
  if (released_) return;
  const bool began = std::exchange(shim_known_, false);
  lease_request_ = 0;
  held_.reset();
  state_.ShimDied(Now().ns);
  // The node joins again with the next shim, or to say that there cannot be one.
  join_.Close();
  ShimFailed(began, reason);
}

void JobRunner::Stand(v1::PartUpdate::Standing standing, absl::string_view reason) {
  const bool final =
      standing_.standing() == v1::PartUpdate::OVER || standing_.standing() == v1::PartUpdate::LEFT;
  if (coordinator_ != nullptr || final) return;
  standing_.set_standing(standing);
  standing_.set_reason(ValidUtf8(reason));
  const bool ends = standing == v1::PartUpdate::OVER || standing == v1::PartUpdate::LEFT;
  if (!ends) callbacks_.on_standing(standing_);  // the end is told when nothing runs here any more
}

void JobRunner::OnStreamLost(const absl::Status& why) {
  pulse_.Lost();
  if (coordinator_ != nullptr || ending_ || absl::IsCancelled(why)) return;
  const Duration patience = std::max<Duration>(kLostPatience, 3 * job_.lease);
  if (Now() - heard_at_ < patience) return Stand(v1::PartUpdate::JOINING, why.message());
  // Not now: the stream is calling us.
  loop_->Post([this, patience, text = std::string(why.message())] {
    Leave(absl::StrCat("the coordinator was not reached for ", ToSeconds(patience), " s: ", text));
  });
}

void JobRunner::OnRefused(const absl::Status& why) {
  LogWarning("job ", job_.job_id, " does not take this node: ", why.message());
  if (coordinator_ != nullptr) {
    rejoin_timer_ = loop_->After(kRefusedPause, [this] { JoinIfReady(); });
    return;
  }
  loop_->Post([this, text = std::string(why.message())] { Leave(text); });
}

void JobRunner::Leave(const std::string& reason) {
  Stand(v1::PartUpdate::LEFT, reason);
  if (ending_ || leaving_) return;
  if (!join_.open()) return EndJob(reason);
  // First the coordinator is told, so that it counts on this node no more.
  leaving_ = true;
  unfit_ = absl::StrCat("it leaves the job (", reason, ")");
  leave_timer_ = loop_->After(kLeavePatience, [this, reason] { EndJob(reason); });
  join_.Close();
  JoinIfReady();
}

void JobRunner::EndJob(absl::string_view reason) {
  if (std::exchange(ending_, true)) return;
  LogInfo("job ", job_.job_id, " ends here: ", reason);
  held_.reset();
  loop_->Cancel(shim_retry_);
  if (!shim_.alive()) return Over();
  shim_.Send(frame::Release{});
}

void JobRunner::Over() {
  if (std::exchange(over_, true)) return;
  if (coordinator_ == nullptr) {
    Stand(v1::PartUpdate::LEFT, "another daemon has it");
    callbacks_.on_standing(standing_);
  } else if (!ending_) {
    LogWarning("left job ", job_.job_id, ": another daemon has it");
  }
  callbacks_.on_over();
}

}  // namespace trainctl
