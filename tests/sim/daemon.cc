#include "tests/sim/daemon.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/sim/node.h"
#include "tests/sim/wire.h"
#include "tests/sim/world.h"

namespace trainctl::sim {
namespace {

constexpr Duration kFirstBackoff = milliseconds(5);
constexpr Duration kMaxBackoff = milliseconds(500);
constexpr int kMaxShimDeaths = 20;

}  // namespace

Daemon::Daemon(World* world, Node* node)
    : world_(world), node_(node), process_(&world->timeline(), &node->machine()) {}

bool Daemon::head() const { return node_->index() == 0; }

void Daemon::Start() {
  if (process_.alive() || !node_->machine().powered()) return;
  process_.Start();
  incarnation_ = world_->NextIncarnation();
  state_ = NodeState();
  pulse_.emplace(world_->spec().lease);
  shim_ = nullptr;
  link_ = 0;
  shim_known_ = false;
  released_ = false;
  job_over_ = false;
  lease_request_ = 0;
  stream_ = kNoStream;
  shim_deaths_ = 0;
  coordinator_deaths_ = 0;
  world_->trace(node_->name(), " daemon starts, incarnation ", incarnation_);
  if (head() && !world_->driver().process().alive()) StartCoordinator();
  AdoptOrStartShim();
  world_->network().CheckSilence(node_->index());
}

void Daemon::Kill() {
  if (!process_.alive()) return;
  world_->trace(node_->name(), " daemon dies");
  process_.Kill();
  if (stream_ != kNoStream) world_->network().CloseByNode(std::exchange(stream_, kNoStream));
  if (shim_ != nullptr) shim_->OnDaemonClosed(link_);
}

void Daemon::LosePower() {
  if (stream_ != kNoStream) world_->network().NodeVanished(std::exchange(stream_, kNoStream));
  shim_ = nullptr;
}

// ---- The shim

void Daemon::AdoptOrStartShim() {
  shim_ = node_->listening_shim();
  if (shim_ == nullptr && node_->any_shim_alive()) {  // it holds the lock, and ends workers
    process_.After(milliseconds(20), [this] { AdoptOrStartShim(); });
    return;
  }
  if (shim_ == nullptr) shim_ = node_->StartShim();
  link_ = world_->NextLink();
  shim_->Hello(link_, incarnation_);
}

void Daemon::ToShim(frame::Frame frame) {
  if (shim_ == nullptr) return;
  const bool again = world_->faults().OrderComesTwice();
  if (!again || std::holds_alternative<frame::Release>(frame)) {
    return shim_->OnFrame(link_, std::move(frame));
  }
  shim_->OnFrame(link_, frame);
  if (!shim_->supervisor().runs()) return shim_->OnFrame(link_, std::move(frame));
  const std::string once = shim_->Fingerprint();
  shim_->OnFrame(link_, frame);
  world_->checkers().OnOrderRepeated(node_->index(), once, shim_->Fingerprint());
}

void Daemon::HearOldTerm() {
  if (!process_.runs() || shim_ == nullptr || link_ == 0 || !shim_->supervisor().runs()) return;
  const int64_t term = shim_->term() - 1;
  const std::string before = shim_->Fingerprint();
  shim_->OnFrame(link_, frame::StopEpoch{term, shim_->epoch(), 0});
  frame::StartEpoch start;
  start.term = term;
  start.epoch = shim_->epoch() + 1;
  shim_->OnFrame(link_, std::move(start));
  world_->checkers().OnOrderRepeated(node_->index(), before, shim_->Fingerprint());
}

void Daemon::OnShimFrame(uint32_t link, frame::Frame frame) {
  process_.Deliver([this, link, frame = std::move(frame)]() mutable {
    if (link == link_) TakeFrame(std::move(frame));
  });
}

void Daemon::TakeFrame(frame::Frame frame) {
  if (const auto* state = std::get_if<frame::ShimState>(&frame)) {
    state_.Take(*state);
    CloseStream();
    shim_known_ = true;
    return JoinIfReady();
  }
  state_.Apply(frame);
  if (const auto* request = std::get_if<frame::LeaseRequest>(&frame)) {
    lease_request_ = request->request_id;
    if (joined()) Asked();
  }
  if (!joined()) return;
  if (std::optional<Event> event = EventOf(node_->name(), incarnation_, frame)) {
    world_->network().Send(stream_, *std::move(event));
  }
}

void Daemon::OnShimClosed(uint32_t link) {
  process_.Deliver([this, link] {
    if (link != link_) return;
    link_ = 0;
  });
}

void Daemon::OnShimDead(Shim* shim) {
  process_.Deliver([this, shim] {
    if (shim != shim_) return;
    world_->trace(node_->name(), " has lost its shim");
    shim_ = nullptr;
    link_ = 0;
    if (released_ || job_over_) return;
    shim_known_ = false;
    lease_request_ = 0;
    state_.ShimDied(process_.Now().ns);
    CloseStream();
    process_.Cancel(&dial_timer_);
    if (++shim_deaths_ <= kMaxShimDeaths) AdoptOrStartShim();
  });
}

// ---- The stream

void Daemon::JoinIfReady() {
  if (!shim_known_ || job_over_ || released_ || joined()) return;
  process_.Cancel(&dial_timer_);
  stream_ = world_->network().Dial(node_->index(), Opening());
  world_->trace(node_->name(), " dials, stream ", stream_);
  Asked();
}

std::vector<Event> Daemon::Opening() const {
  std::vector<Event> events = {JoinedOf(*node_, incarnation_, world_->slots(), state_)};
  for (const frame::Frame& frame : state_.Retold()) {
    if (std::optional<Event> event = EventOf(node_->name(), incarnation_, frame)) {
      events.push_back(*std::move(event));
    }
  }
  events.push_back(LeaseRequested{node_->name(), Incarnation(incarnation_), lease_request_});
  return events;
}

void Daemon::CloseStream() {
  if (!joined()) return;
  world_->trace(node_->name(), " closes stream ", stream_);
  world_->network().CloseByNode(std::exchange(stream_, kNoStream));
  pulse_->Lost();
}

void Daemon::OnCoordinatorClosed(StreamId stream) {
  process_.Deliver([this, stream] {
    if (stream != stream_) return;
    world_->trace(node_->name(), " stream ", stream_, " is closed");
    stream_ = kNoStream;
    pulse_->Lost();
    if (released_ || world_->broken(Mutation::kNeverDialAgain)) return;
    backoff_ = std::clamp<Duration>(backoff_ * 2, kFirstBackoff, kMaxBackoff);
    process_.Cancel(&dial_timer_);
    dial_timer_ = process_.After(backoff_, [this] { JoinIfReady(); });
  });
}

void Daemon::OnOrder(StreamId stream, Order order) {
  process_.Deliver([this, stream, order = std::move(order)] {
    if (stream != stream_) return;
    backoff_ = Duration(0);
    pulse_->Heard();
    if (const auto* answer = std::get_if<AnswerLease>(&order.action)) {
      if (answer->request_id == 0) return;
      if (answer->request_id == lease_request_) lease_request_ = 0;
    }
    if (const auto* ask = std::get_if<ProbeAddress>(&order.action)) {
      return world_->OnProbe(node_->index(), *ask);
    }
    if (std::holds_alternative<ReleaseNode>(order.action)) {
      released_ = true;
      ToShim(frame::Release{});
      return CloseStream();
    }
    std::optional<frame::Frame> frame = FrameOf(order);
    if (!frame) return;
    if (const auto* start = std::get_if<frame::StartEpoch>(&*frame)) state_.Ordered(*start);
    ToShim(*std::move(frame));
  });
}

void Daemon::Answer(Event event) {
  process_.After(world_->random().Between(milliseconds(1), milliseconds(50)),
                 [this, event = std::move(event)] {
                   if (joined()) world_->network().Send(stream_, event);
                 });
}

// ---- The coordinator's process

void Daemon::Asked() {
  pulse_->Asked(process_.Now(), !state_.state().gone);
  if (head()) ArmPulse();
}

void Daemon::ArmPulse() {
  process_.Cancel(&pulse_timer_);
  const Instant next = std::min(pulse_->hangs_at(), pulse_->ask_at());
  if (next != kNever) pulse_timer_ = process_.At(next, [this] { CheckPulse(); });
}

void Daemon::CheckPulse() {
  if (pulse_->hangs_at() <= process_.Now()) {
    pulse_->Ended();
    return world_->driver().Kill("it hangs");
  }
  if (pulse_->ask_at() <= process_.Now()) {
    if (joined()) {
      world_->network().Send(stream_, LeaseRequested{node_->name(), Incarnation(incarnation_), 0});
    }
    return Asked();
  }
  ArmPulse();
}

void Daemon::OnCoordinatorDied(bool well) {
  process_.Deliver([this, well] {
    if (well) {
      job_over_ = true;
      ToShim(frame::Release{});
      return;
    }
    ++coordinator_deaths_;
    const Duration delay = coordinator_deaths_ == 1
                               ? Duration(0)
                               : milliseconds(10) * (1 << (coordinator_deaths_ % 6));
    process_.After(delay, [this] { StartCoordinator(); });
  });
}

void Daemon::StartCoordinator() {
  process_.After(world_->random().Between(milliseconds(2), milliseconds(50)), [this] {
    if (!world_->driver().process().alive()) world_->driver().Start();
  });
}

}  // namespace trainctl::sim
