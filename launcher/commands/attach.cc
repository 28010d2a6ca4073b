#include "launcher/commands/attach.h"

#include <sys/epoll.h>
#include <sys/wait.h>

#include <csignal>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "launcher/commands/end_signals.h"
#include "launcher/commands/exit_status.h"
#include "launcher/job_client.h"
#include "launcher/job_lookup.h"
#include "runtime/base/clock.h"
#include "runtime/base/file.h"

namespace trainctl {
namespace {

// Longer than a coordinator needs to deliver the last output and its last words.
constexpr Duration kLookEvery = seconds(6);
// A person wonders what we wait for.
constexpr Duration kSilence = seconds(5);
// Longer than the daemon needs to replace a coordinator that hangs, with the default lease.
constexpr Duration kStopPatience = seconds(20);
// A service manager, or whoever restarts a daemon, needs no longer to start the next one; with the
// default lease a private one comes early enough then.
constexpr Duration kNextDaemonPatience = seconds(1);
constexpr Duration kNextDaemonPause = milliseconds(100);

}  // namespace

Attachment::Attachment(DisplayOptions options)
    : loop_(*new Loop), display_(&console_, std::move(options)) {
  OnEndSignals(&loop_, [this](int signo) { OnStopSignal(signo); });
}

int Attachment::Stay(const StartedJob& job, std::optional<PrivateDaemon> daemon, bool came_back) {
  leaves_ = came_back;
  job_id_ = job.job_id;
  job_folder_ = job.job_folder;
  job_socket_ = job.job_socket;
  daemon_ = std::move(daemon);
  WatchDaemon();
  WatchOtherDaemon();
  loop_.After(kLookEvery, [this] { LookForTheEnd(); });
  loop_.After(kSilence, [this] {
    if (heard_) return;
    display_.Say(absl::StrCat("the coordinator of job ", job_id_, " has not answered for ",
                              ToSeconds(kSilence), " s; still waiting"),
                 Announce::Level::kWarning);
  });
  WatchOptions options;
  options.output = true;
  options.owner = true;
  JobWatch watch(&loop_, job_socket_, options,
                 {[this](JobUpdate update) { OnUpdate(update); },
                  [this](const absl::Status& status) { OnEnd(status); }});
  const int status = loop_.Run();
  const bool preempted = ended_.has_value() && status == kExitPreempted;
  return stop_signal_ != 0 && !preempted ? kExitSignalBase + stop_signal_ : status;
}

void Attachment::Leave() {
  display_.Say(absl::StrCat("left job ", job_id_, ", which goes on; trainctl stop ", job_id_,
                            " ends it, trainctl resume ", job_id_, " attaches again"));
  loop_.Quit(kExitFailed);
}

void Attachment::OnStopSignal(int signo) {
  if (stop_signal_ == 0) {
    stop_signal_ = signo;
  }
  ++stops_asked_;
  if (leaves_ && stops_asked_ == 1) {
    return Leave();
  }
  if (stops_asked_ > 2) {
    display_.Say(absl::StrCat("leaving; job ", job_id_, " may still be stopping (trainctl status ",
                              job_id_, ")"),
                 Announce::Level::kWarning);
    loop_.Quit(kExitFailed);
    return;
  }
  const bool now = stops_asked_ == 2;
  if (now) display_.DropOutput();
  display_.Say(now ? "killing the workers; what they still print is in the logs only"
                   : absl::StrCat("SIG", sigabbrev_np(signo),
                                  ": stopping the job; once more kills its workers at once"),
               Announce::Level::kWarning);
  AskStop(now);
}

void Attachment::AskStop(bool now) {
  StopAsked order;
  order.by = stop_signal_ == SIGINT
                 ? "Ctrl-C"
                 : absl::StrCat("SIG", sigabbrev_np(stop_signal_), " to the front end");
  order.now = now;
  order.notice = stop_signal_ == SIGTERM;
  AskToStop(&loop_, job_socket_, order, kStopPatience, [this](const absl::Status& asked) {
    if (asked.ok() || ended_.has_value()) return;
    display_.Say(absl::StrCat("cannot ask the job to stop: ", asked.message()),
                 Announce::Level::kError);
  });
}

void Attachment::OnUpdate(const JobUpdate& update) {
  heard_ = true;
  seems_over_ = false;
  display_.Show(update, Now());
  if (const auto* job = std::get_if<JobDescription>(&update)) {
    leaves_ = job->detached;
  }
  if (const auto* end = std::get_if<JobEnded>(&update)) {
    ended_ = *end;
  }
  // As a closed terminal: nobody reads what the job prints, and a foreground job ends with its
  // reader.
  if (console_.reader_gone() && stops_asked_ == 0 && !ended_.has_value()) {
    stop_signal_ = SIGPIPE;
    ++stops_asked_;
    if (leaves_) {
      return Leave();
    }
    AskStop(false);
  }
}

void Attachment::OnEnd(const absl::Status& status) {
  if (!ended_.has_value()) {
    if (std::optional<JobEnded> end = EndInReport(); end.has_value()) {
      OnUpdate(*end);
    }
  }
  if (ended_.has_value()) {
    loop_.Quit(ended_->exit_status);
    return;
  }
  display_.Say(absl::StrCat("lost job ", job_id_, ": ", status.message(), "; trainctl resume ",
                            job_id_, " attaches again"),
               Announce::Level::kError);
  loop_.Quit(ExitStatusOf(status));
}

void Attachment::WatchDaemon() {
  if (daemon_.has_value()) {
    daemon_started_ = Now();
    loop_.Watch(daemon_->child.pidfd.get(), EPOLLIN, [this](uint32_t) { RestartDaemon(); });
  }
}

void Attachment::RestartDaemon() {
  loop_.Unwatch(daemon_->child.pidfd.get());
  int how = 0;
  waitpid(daemon_->child.pid, &how, 0);
  daemon_.reset();
  // It ends by itself, with 0, only when its job is over.
  const bool died = !WIFEXITED(how) || WEXITSTATUS(how) != 0;
  if (!died || ended_.has_value()) {
    return;
  }
  daemon_deaths_ = Now() - daemon_started_ < kQuickDaemonDeath ? daemon_deaths_ + 1 : 1;
  if (daemon_deaths_ > kMostDaemonDeaths) {
    display_.Say(absl::StrCat("the job's daemon dies again and again; its log is ", LogOfDaemon()),
                 Announce::Level::kError);
    return;
  }
  ReplaceDaemon("the job's daemon died; started it again");
}

std::string Attachment::LogOfDaemon() const { return JoinPath(job_folder_, "traind.log"); }

void Attachment::ReplaceDaemon(absl::string_view done) {
  absl::StatusOr<PrivateDaemon> started = StartPrivateDaemon(LogOfDaemon(), job_id_);
  if (!started.ok()) {
    display_.Say(absl::StrCat("the job's daemon died and cannot be started again: ",
                              started.status().message()),
                 Announce::Level::kError);
    return;
  }
  display_.Say(done, Announce::Level::kWarning);
  daemon_ = *std::move(started);
  WatchDaemon();
}

void Attachment::WatchOtherDaemon() {
  if (daemon_.has_value()) return;
  absl::StatusOr<OtherDaemon> daemon = DaemonOf(job_folder_);
  if (!daemon.ok()) return;
  other_daemon_ = std::move(daemon->process);
  loop_.Watch(other_daemon_.get(), EPOLLIN, [this](uint32_t) {
    loop_.Unwatch(other_daemon_.get());
    other_daemon_.Close();
    AwaitOtherDaemon(Now() + kNextDaemonPatience);
  });
}

void Attachment::AwaitOtherDaemon(Instant give_up) {
  if (ended_.has_value()) return;
  if (DaemonOf(job_folder_).ok()) return WatchOtherDaemon();
  if (Now() >= give_up) {
    return ReplaceDaemon("the job's daemon ended and no other came; started a private one");
  }
  loop_.After(kNextDaemonPause, [this, give_up] { AwaitOtherDaemon(give_up); });
}

std::optional<JobEnded> Attachment::EndInReport() const {
  const KnownJob job{job_id_, job_folder_, 0};
  const absl::StatusOr<ReportSeen> report = ReadReport(job);
  if (!report.ok() || report->outcome.empty()) {
    return std::nullopt;
  }
  return JobEnded{report->outcome, report->exit_status, report->reason, ReportPath(job),
                  absl::StrCat("job ", job_id_, " ", report->outcome, ": ", report->reason)};
}

void Attachment::LookForTheEnd() {
  // A coordinator that hangs or dies for good when all else is done leaves the report.
  std::optional<JobEnded> end = EndInReport();
  if (end.has_value() && seems_over_ && !ended_.has_value()) {
    OnUpdate(*end);
    OnEnd(absl::OkStatus());
    return;
  }
  seems_over_ = end.has_value();
  loop_.After(kLookEvery, [this] { LookForTheEnd(); });
}

}  // namespace trainctl
