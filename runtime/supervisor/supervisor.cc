#include "runtime/supervisor/supervisor.h"

#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/clock.h"
#include "runtime/base/log.h"
#include "runtime/supervisor/containment.h"

namespace trainctl {
namespace {

constexpr size_t kMaxPeers = 64 + 4 * kMaxSlots;
constexpr size_t kBulkInFlight = 256 * 1024;
constexpr Duration kLongestProgressPause = seconds(1);
constexpr Duration kFlushPatience = milliseconds(500);
constexpr Duration kShortestAbandonment = seconds(10);
// The keeper ends the workers when the lease is over; we do, if it is stopped.
constexpr Duration kKeeperPatience = milliseconds(100);
constexpr char kToldToEnd[] = "its supervisor was told to end by a signal";

bool SameProgress(const frame::Progress& a, const frame::Progress& b) {
  // The loss by its bits: NaN must not count as a change five times a second.
  return a.epoch == b.epoch && a.step == b.step && a.phase == b.phase && a.resumed == b.resumed &&
         a.total_steps == b.total_steps && a.samples == b.samples &&
         a.first_step_ns == b.first_step_ns && a.data_epoch == b.data_epoch &&
         __builtin_memcmp(&a.loss, &b.loss, sizeof(a.loss)) == 0;
}

}  // namespace

Supervisor::Supervisor(Kept kept) : kept_(std::move(kept)), daemon_watch_(kept_.options.lease) {}

int Supervisor::Run() {
  for (const int signo : {SIGTERM, SIGINT}) {
    loop_.OnSignal(signo, [this](int) { OnEndSignal(); });
  }
  loop_.OnSignal(SIGCHLD, [this](int) {
    if (workers_ != nullptr) workers_->Reap();
  });
  loop_.Watch(kept_.keeper_pidfd.get(), EPOLLIN, [this](uint32_t) {
    loop_.Unwatch(kept_.keeper_pidfd.get());
    LogError("the keeper died; killing every worker and what it started");
    Release("the keeper that held it died (killed?)");
  });
  loop_.Watch(kept_.listener.get(), EPOLLIN, [this](uint32_t) { Accept(); });
  if (absl::StatusOr<PortHold> port = PortHold::Take(); port.ok()) next_port_ = *std::move(port);
  if (kept_.options.daemon_fd >= 0) AddPeer(Fd(kept_.options.daemon_fd));
  ArmAbandoned();
  const int status = loop_.Run();
  kept_.cgroup.Kill();
  KillAllDescendants();
  kept_.cgroup.Remove();
  kept_.socket_file.Remove();
  return status;
}

void Supervisor::Accept() {
  Fd socket(::accept4(kept_.listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!socket.valid()) return;
  ucred peer{};
  socklen_t size = sizeof(peer);
  if (::getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) < 0 ||
      (peer.uid != ::getuid() && peer.uid != 0)) {
    LogWarning("refused a connection of user ", peer.uid, ", pid ", peer.pid);
    return;
  }
  if (peers_.size() >= kMaxPeers) {
    LogWarning("refused a connection of pid ", peer.pid, ": ", peers_.size(), " are open");
    return;
  }
  AddPeer(std::move(socket));
}

void Supervisor::AddPeer(Fd socket) {
  auto owned = std::make_unique<Peer>();
  Peer* peer = owned.get();
  ucred process{};
  socklen_t size = sizeof(process);
  ::getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &process, &size);
  peer->pid = process.pid;
  peer->connection = std::make_unique<Connection>(
      loop_, std::move(socket),
      Connection::Callbacks{[this, peer](frame::Frame f) { OnFrame(peer, std::move(f)); },
                            [this] { Pump(); }, [this] { Pump(); },
                            [this, peer](absl::Status why) { DropPeer(peer, why.message()); }});
  peers_.emplace(peer, std::move(owned));
}

void Supervisor::DropPeer(Peer* peer, absl::string_view reason) {
  const auto found = peers_.find(peer);
  if (found == peers_.end()) return;
  LogInfo("connection closed: ", reason);
  peer->connection->Close();
  buried_.push_back(std::move(found->second));
  peers_.erase(found);
  loop_.Post([this] { buried_.clear(); });
  if (peer != daemon_) return;
  daemon_ = nullptr;
  daemon_watch_.Lost();
  WatchDaemon();
  forwarder_.ForgetRequests();
  loop_.Cancel(progress_timer_);
  ArmAbandoned();
  if (!told_to_end_) return;
  loop_.Post([this] {  // another daemon may be taking its place
    if (daemon_ == nullptr) Release(kToldToEnd);
  });
}

void Supervisor::OnFrame(Peer* peer, frame::Frame frame) {
  bool understood = false;
  switch (peer->role) {
    case Role::kUnknown:
      if (const auto* hello = std::get_if<frame::Hello>(&frame)) return OnHello(peer, *hello);
      break;
    case Role::kDaemon:
      daemon_watch_.Heard(Now());
      WatchDaemon();
      understood = OnDaemonFrame(frame);
      break;
    case Role::kWorker:
      understood = OnWorkerFrame(peer, frame);
      break;
  }
  if (understood) return;
  LogWarning("unexpected frame of type ", frame.index(), " from ",
             peer->role == Role::kWorker   ? absl::StrCat("the worker of rank ", peer->rank)
             : peer->role == Role::kDaemon ? "the daemon"
                                           : "a peer that has not said hello");
  DropPeer(peer, "it broke the protocol");
}

void Supervisor::OnHello(Peer* peer, const frame::Hello& hello) {
  if (hello.version > frame::kFrameVersion || hello.version < frame::kOldestFrameVersion) {
    LogWarning("a peer speaks frame version ", hello.version, "; this shim speaks ",
               frame::kFrameVersion);
    return DropPeer(peer, "unknown frame version");
  }
  peer->incarnation = hello.incarnation;
  peer->rank = hello.rank;
  if (hello.rank < 0) {
    if (daemon_ != nullptr && daemon_->incarnation > hello.incarnation) {
      return DropPeer(peer, "a newer daemon is connected");
    }
    return WelcomeDaemon(peer);
  }
  if (!EpochIsLive() || workers_->epoch() != hello.incarnation || !workers_->HasRank(hello.rank)) {
    return DropPeer(peer, absl::StrCat("rank ", hello.rank, " of epoch ", hello.incarnation,
                                       " is no worker of this shim"));
  }
  for (const auto& [other, owned] : peers_) {
    if (other != peer && other->role == Role::kWorker && other->rank == hello.rank) {
      DropPeer(other, "its worker connected again");
      break;
    }
  }
  peer->role = Role::kWorker;
}

void Supervisor::WelcomeDaemon(Peer* peer) {
  if (daemon_ != nullptr) DropPeer(daemon_, "a newer daemon took its place");
  peer->role = Role::kDaemon;
  daemon_ = peer;
  daemon_->process = Fd(static_cast<int>(::syscall(SYS_pidfd_open, peer->pid, 0)));
  daemon_watch_.Connected(Now());
  WatchDaemon();
  ordered_.reset();  // whoever wants it says so again
  loop_.Cancel(abandoned_timer_);
  SendToDaemon(State());
  gone_sent_ = false;
  last_progress_.clear();
  for (const frame::Frame& frame : records_.TakeForNewDaemon()) SendToDaemon(frame);
  if (EpochIsLive()) SendLeaseRequest();
  ArmProgress();
}

void Supervisor::SendToDaemon(const frame::Frame& frame) {
  if (daemon_ != nullptr) daemon_->connection->Send(frame);
}

frame::ShimState Supervisor::State() const {
  frame::ShimState state;
  state.job_id = kept_.options.job;
  state.term = term_;
  state.reserved_port = next_port_.port;
  if (workers_ != nullptr) {
    state.epoch = workers_->epoch();
    state.gone = workers_->gone();
    state.unkillable = workers_->gone() ? std::string() : unkillable_;
    state.slots = workers_->States();
    state.exchanges = records_.Exchanges();
  }
  return state;
}

EpochWorkers::Callbacks Supervisor::WorkerCallbacks() {
  EpochWorkers::Callbacks callbacks;
  callbacks.on_started = [this] { SendStarted(); };
  callbacks.on_exited = [this](const frame::WorkerExited& exited) {
    SendProgress();  // its last step, before its end
    SendToDaemon(exited);
  };
  callbacks.on_gone = [this] { OnGone(); };
  callbacks.on_output = [this] { Pump(); };
  callbacks.on_changed = [this](pid_t pid, bool stopped) {
    if (hangs_ != nullptr) hangs_->Changed(pid, stopped);
  };
  callbacks.on_unkillable = [this](std::string which) {
    unkillable_ = std::move(which);
    LogError("SIGKILL does not end: ", unkillable_);
    SendToDaemon(frame::Unkillable{workers_->epoch(), unkillable_});
  };
  callbacks.on_note = [this](int32_t rank, std::string text) { AddNote(rank, std::move(text)); };
  return callbacks;
}

HangDetector::Callbacks Supervisor::HangCallbacks() {
  HangDetector::Callbacks callbacks;
  callbacks.on_suspected = [this](int32_t rank, uint64_t step, std::string reason) {
    LogWarning("rank ", rank, " ", reason);
    SendToDaemon(frame::HangSuspected{workers_->epoch(), rank, step, std::move(reason)});
  };
  callbacks.on_diagnosed = [this](std::vector<frame::RankEvidence> ranks) {
    SendToDaemon(frame::WorkersDiagnosed{workers_->epoch(), std::move(ranks)});
  };
  return callbacks;
}

void Supervisor::SendStarted() {
  SendToDaemon(frame::EpochStarted{workers_->epoch(), next_port_.port, workers_->States()});
}

void Supervisor::OnGone() {
  loop_.Cancel(progress_timer_);
  loop_.Cancel(lease_timer_);
  lease_.End();
  TellKeeper();
  Pump();
  if (releasing_) return QuitWhenFlushed();
  if (daemon_ == nullptr) ArmAbandoned();
}

void Supervisor::Pump() {
  if (daemon_ == nullptr) return;
  Connection& connection = *daemon_->connection;
  const bool all_given =
      forwarder_.Pump([&connection] { return connection.queued_bulk() < kBulkInFlight; },
                      [&connection](const frame::Output& output) { connection.SendBulk(output); });
  if (const Instant due = forwarder_.next_due(); due != pump_due_) {
    loop_.Cancel(pump_timer_);
    pump_due_ = due;
    if (due != kNever) pump_timer_ = loop_.At(due, [this] { Pump(); });
  }
  if (!all_given) return;
  if (workers_ != nullptr && workers_->gone() && !gone_sent_) {
    gone_sent_ = true;
    // In the queue of the output, so that it follows the last of it.
    connection.SendBulk(frame::EpochGone{workers_->epoch()});
  }
}

bool Supervisor::SendProgress() {
  if (daemon_ == nullptr || workers_ == nullptr) return false;
  // A daemon that does not keep up gets fewer of them, each still the newest.
  if (daemon_->connection->queued_control() > kBulkInFlight) return false;
  bool moved = false;
  last_progress_.resize(workers_->size());
  for (size_t i = 0; i < std::min(workers_->size(), kept_.pages.pages.size()); ++i) {
    const WorkerPage& page = *kept_.pages.pages[i].get();
    frame::Progress now;
    now.epoch = workers_->epoch();
    now.rank = workers_->RankOf(i);
    now.step = page.step.load();
    now.total_steps = page.total_steps.load();
    now.samples = page.samples.load();
    now.loss = page.loss.load();
    now.data_epoch = page.data_epoch.load();
    now.phase = page.phase.load();
    now.resumed = page.resumed.load();
    now.first_step_ns = page.first_step_ns.load();
    const bool never_written = now.phase == 0 && now.step == 0;
    if (never_written || SameProgress(now, last_progress_[i])) continue;
    last_progress_[i] = now;
    moved = true;
    // The job's progress is that of rank 0; what wakes three processes five times a second is not
    // told in vain.
    if (now.rank == 0) SendToDaemon(now);
  }
  return moved;
}

void Supervisor::ArmProgress(Duration pause) {
  loop_.Cancel(progress_timer_);
  if (daemon_ == nullptr || !EpochIsLive()) return;
  progress_timer_ = loop_.After(pause, [this, pause] {
    if (hangs_ != nullptr) hangs_->Look();
    ArmProgress(SendProgress() ? kProgressPause : std::min(2 * pause, kLongestProgressPause));
  });
}

void Supervisor::AddNote(int32_t rank, std::string text) {
  const frame::Note note{workers_ != nullptr ? workers_->epoch() : -1, rank, std::move(text)};
  if (daemon_ != nullptr) {
    SendToDaemon(note);
  } else {
    records_.KeepUnsent(note);
  }
}

void Supervisor::SendLeaseRequest() {
  loop_.Cancel(lease_timer_);
  if (!EpochIsLive()) return;
  if (daemon_ != nullptr) {
    const Instant now = Now();
    SendToDaemon(frame::LeaseRequest{lease_.Request(now)});
    daemon_watch_.RequestedLease(now);
    WatchDaemon();
  }
  lease_timer_ = loop_.After(kept_.options.lease / 3, [this] { SendLeaseRequest(); });
}

void Supervisor::TellKeeper() {
  loop_.Cancel(lease_end_timer_);
  if (lease_.until() != kNever) {
    lease_end_timer_ = loop_.At(lease_.until() + kKeeperPatience, [this] {
      if (EpochIsLive())
        workers_->Stop(Duration(0), "the lease is over, and the keeper does nothing");
    });
  }
  const LeaseNote note{lease_.until()};
  // A keeper that is dead shows in its pidfd; one that is stopped and has a full queue still holds
  // an older, shorter lease, which errs on the safe side.
  [[maybe_unused]] const ssize_t n =
      ::send(kept_.keeper_link.get(), &note, sizeof(note), MSG_DONTWAIT | MSG_NOSIGNAL);
}

void Supervisor::ArmAbandoned() {
  loop_.Cancel(abandoned_timer_);
  if (EpochIsLive()) return;  // then the lease counts
  abandoned_timer_ = loop_.After(std::max(kept_.options.lease, kShortestAbandonment), [this] {
    if (daemon_ == nullptr && !EpochIsLive()) Release("there are no workers and no daemon");
  });
}

// A scheduler signals every process of a job at once, and what is to be done about it the daemon is
// told by its front end, with the grace that the workers have. Without a daemon we are meant.
void Supervisor::OnEndSignal() {
  told_to_end_ = true;
  if (daemon_ == nullptr) Release(kToldToEnd);
}

void Supervisor::Release(absl::string_view reason) {
  LogInfo("ending: ", reason);
  releasing_ = true;
  if (!EpochIsLive()) return QuitWhenFlushed();
  workers_->Stop(Duration(0), reason);
}

void Supervisor::QuitWhenFlushed() {
  const Instant until = Now() + kFlushPatience;
  // Polled, because it is short and happens once.
  struct Flush {
    static void Check(Supervisor* self, Instant until) {
      const bool flushed = self->daemon_ == nullptr || self->daemon_->connection->idle();
      if (flushed || Now() >= until) return self->loop_.Quit(0);
      self->loop_.After(milliseconds(2), [self, until] { Check(self, until); });
    }
  };
  Flush::Check(this, until);
}

}  // namespace trainctl
