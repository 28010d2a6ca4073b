#include "runtime/node/coordinator_process.h"

#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "runtime/base/clock.h"
#include "runtime/base/log.h"
#include "runtime/base/places.h"
#include "runtime/base/program.h"

namespace trainctl {
namespace {

constexpr Duration kQuickDeath = seconds(10);
constexpr Duration kFirstPause = milliseconds(10);
constexpr Duration kLongestPause = seconds(1);  // leases are asked for meanwhile
// A coordinator that a daemon started just before it was killed holds the journal and does not
// listen yet.
constexpr Duration kOtherPause = milliseconds(100);
constexpr Duration kOtherPatience = seconds(20);

}  // namespace

CoordinatorProcess::CoordinatorProcess(Loop* loop, std::string job_id, std::string job_folder,
                                       std::string socket, bool scope, Callbacks callbacks)
    : loop_(loop),
      job_id_(std::move(job_id)),
      job_folder_(std::move(job_folder)),
      socket_(std::move(socket)),
      own_scope_(scope),
      callbacks_(std::move(callbacks)) {}

CoordinatorProcess::~CoordinatorProcess() {
  loop_->Cancel(retry_);
  StopWatchingReady();
  if (pidfd_.valid()) loop_->Unwatch(pidfd_.get());
}

void CoordinatorProcess::Kill() {
  loop_->Cancel(retry_);
  if (!pidfd_.valid()) return callbacks_.on_over();
  killed_ = true;
  ::syscall(SYS_pidfd_send_signal, pidfd_.get(), SIGKILL, nullptr, 0u);
}

void CoordinatorProcess::Replace() {
  if (!pidfd_.valid()) return;
  hung_ = true;
  ::syscall(SYS_pidfd_send_signal, pidfd_.get(), SIGKILL, nullptr, 0u);
}

void CoordinatorProcess::StopWatchingReady() {
  if (!ready_.valid()) return;
  loop_->Unwatch(ready_.get());
  ready_.Close();
}

void CoordinatorProcess::Begin() {
  if (Adopt()) {
    callbacks_.on_listening();
  } else {
    Start();
  }
}

bool CoordinatorProcess::Adopt() {
  absl::StatusOr<Fd> probe = ConnectUnix(socket_);
  if (!probe.ok()) return false;
  ucred peer{};
  socklen_t size = sizeof(peer);
  ::getsockopt(probe->get(), SOL_SOCKET, SO_PEERCRED, &peer, &size);
  Fd pidfd(static_cast<int>(::syscall(SYS_pidfd_open, peer.pid, 0)));
  if (!pidfd.valid()) return false;
  ours_ = false;
  locked_out_ = kNever;
  WatchProcess(std::move(pidfd));
  return true;
}

void CoordinatorProcess::Start() {
  started_ = Now();
  refused_ = absl::OkStatus();
  absl::StatusOr<std::string> program = FindProgram("train-coordinator");
  if (!program.ok()) return callbacks_.on_failed(program.status());
  absl::StatusOr<ReadyPipe> ready = MakeReadyPipe();
  if (!ready.ok()) return callbacks_.on_failed(ready.status());
  StartOptions options;
  options.inherit = {ready->write.get()};
  options.log_file = absl::StrCat(job_folder_, "/coordinator.log");
  absl::StatusOr<Child> child =
      StartProgram({*program, "--job-folder", job_folder_, "--socket", socket_, "--ready-fd",
                    absl::StrCat(ready->write.get())},
                   options);
  if (!child.ok()) return callbacks_.on_failed(child.status());
  ours_ = true;
  if (own_scope_) {
    scope_ = std::make_unique<JobScope>(
        loop_, child->pid,
        // It may be killed at any time, and leaves other signals to its front end.
        ScopeSpec{absl::StrCat(ScopeName(ShimSocket(job_id_)), ".coordinator"),
                  absl::StrCat("coordinator of trainctl job ", job_id_), SIGKILL},
        [this](const absl::Status& status) {
          if (!status.ok()) {
            LogInfo("the coordinator of job ", job_id_,
                    " stays in the cgroup of traind: ", status.message());
          }
        });
  }
  ready_ = std::move(ready->read);
  loop_->Watch(ready_.get(), EPOLLIN, [this](uint32_t) { ReadyReadable(); });
  WatchProcess(std::move(child->pidfd));
}

void CoordinatorProcess::WatchProcess(Fd pidfd) {
  pidfd_ = std::move(pidfd);
  loop_->Watch(pidfd_.get(), EPOLLIN, [this](uint32_t) { Died(); });
}

void CoordinatorProcess::ReadyReadable() {
  const absl::Status status = ReadReady(ready_.get());
  StopWatchingReady();
  if (status.ok()) {
    locked_out_ = kNever;
    return callbacks_.on_listening();
  }
  // UNAVAILABLE: it died without a word, which Died handles.
  if (!absl::IsUnavailable(status)) refused_ = status;
}

// Whether there is still time for the one that holds the journal to listen, or to end.
bool CoordinatorProcess::AwaitOther() {
  if (locked_out_ == kNever) {
    locked_out_ = Now();
    LogInfo("job ", job_id_, " has a coordinator that does not listen yet; waiting for it");
  }
  if (Now() - locked_out_ > kOtherPatience) return false;
  retry_ = loop_->After(kOtherPause, [this] { Begin(); });
  return true;
}

void CoordinatorProcess::Died() {
  if (ready_.valid()) ReadyReadable();
  siginfo_t info{};
  const bool known =
      ours_ && ::waitid(static_cast<idtype_t>(3 /* P_PIDFD */), pidfd_.get(), &info, WEXITED) == 0;
  loop_->Unwatch(pidfd_.get());
  pidfd_.Close();
  // One that was not our child tells no status, but one that ends well removes its socket.
  const bool ended_well = known ? info.si_code == CLD_EXITED && info.si_status == 0
                                : ::access(socket_.c_str(), F_OK) < 0;
  if (killed_) ::unlink(socket_.c_str());
  if (ended_well || killed_) return callbacks_.on_over();
  if (absl::IsAlreadyExists(refused_) && AwaitOther()) return;
  if (!refused_.ok()) return callbacks_.on_failed(refused_);
  const std::string death = !known ? "ended"
                            : info.si_code == CLD_EXITED
                                ? absl::StrCat("ended with status ", info.si_status)
                                : absl::StrCat("was killed by signal ", info.si_status);
  const bool hung = std::exchange(hung_, false);
  quick_deaths_ = !hung && Now() - started_ < kQuickDeath ? quick_deaths_ + 1 : 1;
  LogWarning("the coordinator of job ", job_id_, " ", death, "; starting it from its journal");
  // SIGKILL comes from outside and says nothing about the coordinator or its journal.
  const bool killed = known && info.si_code == CLD_KILLED && info.si_status == SIGKILL;
  if (quick_deaths_ > kMaxQuickDeaths && !killed) {
    return callbacks_.on_failed(absl::InternalError(absl::StrCat(
        "the coordinator of job ", job_id_, " ", death, ", ", kMaxQuickDeaths,
        " times in a row soon after it was started; see ", job_folder_, "/coordinator.log")));
  }
  const Duration delay =
      quick_deaths_ == 1 ? Duration(0) : kFirstPause * (1 << std::min(quick_deaths_, 10));
  retry_ = loop_->After(std::min<Duration>(delay, kLongestPause), [this] { Start(); });
}

}  // namespace trainctl
