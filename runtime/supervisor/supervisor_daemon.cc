// Frames of the daemon.
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/base/clock.h"
#include "runtime/base/errno_status.h"
#include "runtime/base/file.h"
#include "runtime/base/log.h"
#include "runtime/supervisor/supervisor.h"

namespace trainctl {
namespace {

constexpr size_t kLongestName = 64;  // of a process, with room to spare

}  // namespace

bool Supervisor::OnDaemonFrame(frame::Frame& frame) {
  if (auto* start = std::get_if<frame::StartEpoch>(&frame)) {
    OnStartEpoch(*start);
  } else if (const auto* stop = std::get_if<frame::StopEpoch>(&frame)) {
    OnStopEpoch(*stop);
  } else if (const auto* answer = std::get_if<frame::LeaseAnswer>(&frame)) {
    OnLeaseAnswer(*answer);
  } else if (const auto* request = std::get_if<frame::PageRequest>(&frame)) {
    OnPageRequest(*request);
  } else if (const auto* signal = std::get_if<frame::SignalWorkers>(&frame)) {
    const bool valid = signal->signo > 0 && signal->signo < NSIG;
    if (valid && EpochIsLive() && workers_->epoch() == signal->epoch) {
      workers_->Signal(signal->signo, signal->ranks);
    }
  } else if (const auto* from = std::get_if<frame::OutputFrom>(&frame)) {
    forwarder_.Request(*from);
  } else if (const auto* done = std::get_if<frame::ExchangeDone>(&frame)) {
    OnExchangeDone(*done);
  } else if (const auto* granted = std::get_if<frame::CommitGranted>(&frame)) {
    OnCommitGranted(*granted);
  } else if (const auto* diagnose = std::get_if<frame::DiagnoseWorkers>(&frame)) {
    OnDiagnose(*diagnose);
  } else if (std::holds_alternative<frame::Release>(frame)) {
    Release("the job is over");
  } else if (std::holds_alternative<frame::Pong>(frame)) {
    // That it came is all it says.
  } else {
    return false;
  }
  return true;
}

bool Supervisor::TermIsCurrent(int64_t term, absl::string_view what) {
  if (term < term_) {
    ++refused_;
    LogWarning("refused ", what, " of term ", term, ": term ", term_, " has been seen (", refused_,
               " refused so far)");
    return false;
  }
  term_ = term;
  return true;
}

void Supervisor::OnStartEpoch(frame::StartEpoch& start) {
  if (!TermIsCurrent(start.term, "StartEpoch") || releasing_) return;
  if (workers_ != nullptr && workers_->epoch() == start.epoch) {
    if (workers_->started()) SendStarted();  // said again: the answer was lost
    return;
  }
  std::set<int32_t> ranks;
  for (const frame::Launch& launch : start.workers) ranks.insert(launch.rank);
  const bool older = workers_ != nullptr && start.epoch < workers_->epoch();
  if (older || EpochIsLive() || ranks.size() != start.workers.size() || start.epoch < 0) {
    ++refused_;
    LogWarning("refused StartEpoch ", start.epoch, ": ",
               older           ? absl::StrCat("epoch ", workers_->epoch(), " has been started")
               : EpochIsLive() ? absl::StrCat("workers of epoch ", workers_->epoch(), " are left")
                               : "it is malformed");
    return SendToDaemon(State());
  }
  // The order may have been on its way for long, and the job without this node since. Nothing is
  // started before the coordinator says that it still holds.
  if (ordered_.has_value() && ordered_->epoch == start.epoch) return;
  ordered_ = std::move(start);
  ordered_at_ = Now();
  order_request_ = lease_.Request(ordered_at_);
  SendToDaemon(frame::LeaseRequest{order_request_});
}

void Supervisor::StartOrdered() {
  frame::StartEpoch start = *std::exchange(ordered_, std::nullopt);
  std::vector<Peer*> old_workers;
  for (const auto& [peer, owned] : peers_) {
    if (peer->role == Role::kWorker) old_workers.push_back(peer);
  }
  for (Peer* peer : old_workers) DropPeer(peer, "its epoch is over");
  records_.Reset();
  last_progress_.clear();
  gone_sent_ = false;
  // The port that was announced for this epoch stays held while it lives.
  port_ = std::exchange(next_port_, PortHold{});
  if (absl::StatusOr<PortHold> port = PortHold::Take(); port.ok()) {
    next_port_ = *std::move(port);
  } else {
    LogWarning(port.status().message());
  }
  lease_.Begin(ordered_at_, kept_.options.lease);
  TellKeeper();
  // The old workers go first: they refer to streams that the forwarder may now close.
  hangs_.reset();
  workers_.reset();
  unkillable_.clear();
  std::vector<int32_t> ranks;
  for (const frame::Launch& launch : start.workers) ranks.push_back(launch.rank);
  forwarder_.BeginEpoch(start.epoch, start.log_folder, start.log_quota, ranks);
  const Duration hang_timeout(start.hang_timeout_ns);
  const std::string log_folder = start.log_folder;
  workers_ =
      std::make_unique<EpochWorkers>(loop_, std::move(start), kept_.options.socket, kept_.pages,
                                     kept_.cgroup, forwarder_, WorkerCallbacks());
  workers_->Start();
  hangs_ = std::make_unique<HangDetector>(loop_, *workers_, kept_.pages, hang_timeout, log_folder,
                                          HangCallbacks());
  forwarder_.EndStart();
  SendLeaseRequest();
  ArmProgress();
  // Last: short-lived workers may be gone already, and EpochGone must follow all the above.
  workers_->Reap();
}

void Supervisor::DropOrder() {
  LogInfo("epoch ", ordered_->epoch, " is not started: it is over");
  ordered_.reset();
  SendToDaemon(State());
}

void Supervisor::OnStopEpoch(const frame::StopEpoch& stop) {
  if (!TermIsCurrent(stop.term, "StopEpoch")) return;
  if (ordered_.has_value() && ordered_->epoch == stop.epoch) return DropOrder();
  if (workers_ == nullptr || workers_->epoch() != stop.epoch) {
    LogInfo("StopEpoch ", stop.epoch, " is not about the current epoch");
    return;
  }
  if (workers_->gone()) {
    gone_sent_ = false;  // said again: the answer was lost
    return Pump();
  }
  workers_->Stop(Duration(stop.grace_ns), "the coordinator stopped it",
                 stop.abort ? SIGABRT : SIGTERM);
}

void Supervisor::OnLeaseAnswer(const frame::LeaseAnswer& answer) {
  if (!TermIsCurrent(answer.term, "LeaseAnswer")) return;
  if (ordered_.has_value() && answer.request_id >= order_request_) {
    return answer.granted ? StartOrdered() : DropOrder();
  }
  if (!EpochIsLive()) return;
  if (!answer.granted) return workers_->Stop(Duration(0), "the lease of its node was refused");
  if (lease_.Grant(answer.request_id, Duration(answer.lease_ns))) TellKeeper();
}

void Supervisor::OnDiagnose(const frame::DiagnoseWorkers& diagnose) {
  if (workers_ == nullptr || workers_->epoch() != diagnose.epoch || hangs_ == nullptr) return;
  hangs_->Diagnose();
}

void Supervisor::OnPageRequest(const frame::PageRequest& request) {
  if (!EpochIsLive() || workers_->epoch() != request.epoch) return;
  for (MappedPage& page : kept_.pages.pages) {
    if (request.stop) page->stop_requested.store(1);
    if (request.checkpoint) page->checkpoint_requested.fetch_add(1);
  }
}

void Supervisor::OnExchangeDone(const frame::ExchangeDone& done) {
  if (workers_ == nullptr || workers_->epoch() != done.epoch) return;
  for (const int32_t rank : records_.TakeWaiting(done.name)) {
    for (const auto& [peer, owned] : peers_) {
      if (peer->role == Role::kWorker && peer->rank == rank) peer->connection->Send(done);
    }
  }
}

void Supervisor::OnCommitGranted(const frame::CommitGranted& granted) {
  if (workers_ == nullptr || workers_->epoch() != granted.epoch) return;
  if (!TermIsCurrent(granted.term, "CommitGranted")) return;
  for (const auto& [peer, owned] : peers_) {
    if (peer->role == Role::kWorker && peer->rank == 0) peer->connection->Send(granted);
  }
}

void Supervisor::WatchDaemon() {
  loop_.Cancel(daemon_timer_);
  const Instant next = std::min(daemon_watch_.ask_at(), daemon_watch_.hangs_at());
  if (next != kNever) daemon_timer_ = loop_.At(next, [this] { OnDaemonWatch(); });
}

void Supervisor::OnDaemonWatch() {
  const Instant now = Now();
  if (daemon_watch_.hangs_at() <= now) return EndHangingDaemon();
  if (daemon_watch_.ask_at() <= now) {
    SendToDaemon(frame::Ping{});
    daemon_watch_.Asked(now);
  }
  WatchDaemon();
}

// Whoever started it starts the next one once it is dead, and notices nothing before.
void Supervisor::EndHangingDaemon() {
  const Instant heard = daemon_watch_.heard();
  daemon_watch_.Lost();
  const std::string which = absl::StrCat("traind (pid ", daemon_->pid, ")");
  // Somebody else's program may speak to us in its place.
  const auto name = ReadFile(absl::StrCat("/proc/", daemon_->pid, "/comm"), kLongestName);
  if (!name.ok() || *name != "traind\n") {
    return LogError("what commands us (pid ", daemon_->pid, ") does not answer and is no traind");
  }
  if (::syscall(SYS_pidfd_send_signal, daemon_->process.get(), SIGKILL, nullptr, 0u) < 0) {
    return LogError(ErrnoStatus(errno, absl::StrCat("end ", which, ", which hangs")).message());
  }
  const std::string text =
      absl::StrCat(which, " hung: it answered nothing for ", (Now() - heard) / milliseconds(1),
                   " ms; it was killed, so that another one can take its place");
  LogError(text);
  records_.KeepUnsent({workers_ != nullptr ? workers_->epoch() : -1, -1, text});
}

}  // namespace trainctl
