#include "runtime/node/shim_link.h"

#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "runtime/base/clock.h"
#include "runtime/base/errno_status.h"
#include "runtime/base/log.h"
#include "runtime/base/program.h"
#include "runtime/base/status.h"
#include "runtime/local/cgroup.h"
#include "runtime/local/shim_files.h"
#include "runtime/node/process_tree.h"
#include "runtime/node/shim_sweep.h"
#include "runtime/node/slot_lock.h"

namespace trainctl {
namespace {

constexpr int kMaxRefusals = 5;
constexpr Duration kReconnectDelay = milliseconds(20);
constexpr Duration kSweepPatience = seconds(5);
constexpr Duration kSweepPause = milliseconds(2);

}  // namespace

ShimLink::ShimLink(Loop* loop, ShimPlace place, int64_t incarnation, Callbacks callbacks)
    : loop_(loop),
      place_(std::move(place)),
      incarnation_(incarnation),
      callbacks_(std::move(callbacks)) {}

ShimLink::~ShimLink() {
  loop_->Cancel(retry_);
  if (pidfd_.valid()) loop_->Unwatch(pidfd_.get());
}

// Whoever is stopped tells nothing of the others' end. Children first, because the end of the
// keeper wakes the supervisor.
void ShimLink::KillAtOnce() {
  const pid_t keeper = pidfd_.valid() ? PidOfPidfd(pidfd_.get()) : -1;
  if (keeper <= 0) return;
  for (const pid_t pid : ProcessTree(keeper)) ::kill(pid, SIGSTOP);
  std::vector<pid_t> all = ProcessTree(keeper);
  std::reverse(all.begin(), all.end());
  for (const pid_t pid : all) ::kill(pid, SIGKILL);
}

absl::Status ShimLink::Start() {
  ASSIGN_OR_RETURN(const std::string program, FindProgram("train-shim"));
  // A keeper or supervisor that lost the other may still be killing workers, and accept nobody.
  absl::StatusOr<Fd> only = LockShim(ShimLock(place_.socket));
  // Both its halves may have died in one instant, while no daemon was here to see it.
  const absl::Status free =
      only.ok() ? SweepMarkedCgroup(CgroupMark(place_.socket), Duration(0)) : only.status();
  if (sweep_until_ == kNever) sweep_until_ = Now() + kSweepPatience;
  if (absl::IsUnavailable(free) || (absl::IsDeadlineExceeded(free) && Now() < sweep_until_)) {
    if (!std::exchange(told_of_waiting_, true)) {
      LogWarning("start the shim of job ", place_.job_id, " later: ", free.message());
    }
    retry_ = loop_->After(kReconnectDelay, [this] { AdoptOrStart(); });
    return absl::OkStatus();
  }
  told_of_waiting_ = false;
  sweep_until_ = kNever;
  RETURN_IF_ERROR(free);
  ASSIGN_OR_RETURN(std::vector<Fd> locks, LockSlots(SlotLockFolder(), place_.gpus, place_.job_id));
  locks.push_back(*std::move(only));
  int pair[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0) {
    return ErrnoStatus(errno, "create the connection to the shim");
  }
  Fd near(pair[0]);
  Fd far(pair[1]);
  ASSIGN_OR_RETURN(ReadyPipe ready, MakeReadyPipe());
  // Without waiting: whoever else inherited the other end may hold it open.
  RETURN_IF_ERROR(SetNonBlocking(ready.read.get()));
  ReadyPipe gate;
  if (place_.scope) {
    ASSIGN_OR_RETURN(gate, MakeReadyPipe());
  }
  StartOptions options;
  options.inherit = {far.get(), ready.write.get()};
  for (const Fd& lock : locks) options.inherit.push_back(lock.get());
  options.log_file = absl::StrCat(place_.job_folder, "/shim.log");
  std::vector<std::string> argv = {program,
                                   "--job",
                                   place_.job_id,
                                   "--socket",
                                   place_.socket,
                                   "--folder",
                                   place_.job_folder,
                                   "--slots",
                                   absl::StrCat(place_.slots),
                                   "--lease",
                                   absl::StrCat(place_.lease.count() / 1'000'000, "ms"),
                                   "--daemon-fd",
                                   absl::StrCat(far.get()),
                                   "--ready-fd",
                                   absl::StrCat(ready.write.get())};
  if (place_.scope) {
    options.inherit.push_back(gate.read.get());
    argv.push_back(absl::StrCat("--scope-fd=", gate.read.get()));
  }
  argv.push_back("--hold-fds");
  argv.push_back(absl::StrJoin(
      locks, ",", [](std::string* out, const Fd& lock) { absl::StrAppend(out, lock.get()); }));
  ASSIGN_OR_RETURN(Child child, StartProgram(argv, options));
  ours_ = true;
  ready_ = std::move(ready.read);
  if (place_.scope) AskForScope(child.pid, std::move(gate.write));
  WatchProcess(std::move(child.pidfd));
  Connected(std::move(near));
  return absl::OkStatus();
}

// The shim makes its cgroups where it then is, so it waits until it has been moved.
void ShimLink::AskForScope(pid_t shim, Fd gate) {
  scope_gate_ = std::move(gate);
  scope_ = std::make_unique<JobScope>(
      loop_, shim,
      ScopeSpec{ScopeName(place_.socket), absl::StrCat("trainctl job ", place_.job_id)},
      [this](const absl::Status& status) {
        scope_gate_.Close();
        if (status.ok()) return;
        LogWarning(
            "job ", place_.job_id,
            " stays in the cgroup of traind, without a scope of its own: ", status.message());
      });
}

void ShimLink::AdoptOrStart() {
  if (Adopt().ok()) return;
  if (const absl::Status status = Start(); !status.ok()) callbacks_.on_dead(status.message());
}

absl::Status ShimLink::Adopt() {
  ASSIGN_OR_RETURN(Fd socket, ConnectUnix(place_.socket));
  if (!pidfd_.valid()) {
    ucred keeper{};
    socklen_t size = sizeof(keeper);
    ::getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &keeper, &size);
    Fd pidfd(static_cast<int>(::syscall(SYS_pidfd_open, keeper.pid, 0)));
    if (!pidfd.valid()) {
      return absl::UnavailableError(absl::StrCat("the shim at ", place_.socket, " just died"));
    }
    ours_ = false;
    WatchProcess(std::move(pidfd));
  }
  Connected(std::move(socket));
  return absl::OkStatus();
}

void ShimLink::Connected(Fd socket) {
  connection_ = std::make_unique<Connection>(
      *loop_, std::move(socket),
      Connection::Callbacks{[this](frame::Frame frame) {
                              if (std::holds_alternative<frame::ShimState>(frame)) refusals_ = 0;
                              callbacks_.on_frame(std::move(frame));
                            },
                            [this] { callbacks_.on_batch_end(); }, [] {},
                            [this](const absl::Status& why) { Closed(why); }});
  connected_ = true;
  sweep_until_ = kNever;
  connection_->Send(frame::Hello{frame::kFrameVersion, incarnation_, -1});
}

void ShimLink::Closed(const absl::Status& why) {
  connected_ = false;
  LogInfo("connection to the shim of job ", place_.job_id, ": ", why.message());
  if (!pidfd_.valid()) return TellDead(Now() + kSweepPatience);
  if (++refusals_ > kMaxRefusals) return callbacks_.on_taken();
  // The process may be about to end; its pidfd tells. If it lives on, it is asked again.
  retry_ = loop_->After(kReconnectDelay, [this] { Reconnect(); });
}

void ShimLink::Reconnect() {
  if (!pidfd_.valid() || Adopt().ok()) return;
  // Not a refusal: half of it is dead, and the other half ends the workers first, however long
  // that takes.
  retry_ = loop_->After(kReconnectDelay, [this] { Reconnect(); });
}

void ShimLink::Send(const frame::Frame& frame) {
  if (connection_ != nullptr) connection_->Send(frame);
}

void ShimLink::WatchProcess(Fd pidfd) {
  pidfd_ = std::move(pidfd);
  loop_->Watch(pidfd_.get(), EPOLLIN, [this](uint32_t) { Died(); });
}

void ShimLink::Died() {
  death_ = "not our child, so its exit status is unknown";
  siginfo_t info{};
  if (ours_ &&
      ::waitid(static_cast<idtype_t>(3 /* P_PIDFD */), pidfd_.get(), &info, WEXITED) == 0) {
    death_ = info.si_code == CLD_EXITED ? absl::StrCat("exit status ", info.si_status)
                                        : absl::StrCat("signal ", info.si_status);
  }
  if (ready_.valid()) {
    const absl::Status told = ReadReady(ready_.get());
    if (!told.ok() && !absl::IsUnavailable(told)) death_ = std::string(told.message());
    ready_.Close();
  }
  loop_->Unwatch(pidfd_.get());
  pidfd_.Close();
  loop_->Cancel(retry_);
  // What it had sent before it died comes first: the connection tells its end after that.
  if (!connected_) TellDead(Now() + kSweepPatience);
}

// Not before its workers are gone, of which a shim that died whole has left everyone.
void ShimLink::TellDead(Instant give_up) {
  const absl::Status swept = SweepShim(place_.socket, Duration(0));
  if (!swept.ok() && Now() < give_up) {
    retry_ = loop_->After(kSweepPause, [this, give_up] { TellDead(give_up); });
    return;
  }
  if (!swept.ok()) LogError(swept.message());
  callbacks_.on_dead(death_);
}

}  // namespace trainctl
