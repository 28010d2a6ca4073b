#include "launcher/commands/take_part.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "launcher/commands/end_signals.h"
#include "launcher/commands/exit_status.h"
#include "launcher/commands/job_start.h"
#include "launcher/commands/requeue.h"
#include "launcher/job_client.h"
#include "launcher/node_client.h"
#include "runtime/base/clock.h"
#include "runtime/base/errno_status.h"
#include "runtime/base/file.h"
#include "runtime/base/places.h"
#include "runtime/base/status.h"
#include "runtime/json/json_text.h"
#include "runtime/security/cluster_key.h"

namespace trainctl {
namespace {

constexpr Duration kWordEvery = seconds(5);
constexpr Duration kDaemonEnds = seconds(10);
// Longer than Slurm needs, as it is configured unless somebody has changed it, to see that a node
// is gone.
constexpr Duration kSlurmNotices = seconds(360);
constexpr int kMostNames = 64;  // of nodes of one job on one machine

// What may stand in a certificate.
std::string MachineName() {
  char name[256] = {};
  gethostname(name, sizeof name - 1);
  std::string text = name;
  for (char& c : text) {
    if (!IsNodeName(std::string("n") + c)) c = '-';
  }
  return IsNodeName(text) ? text : "node";
}

}  // namespace

Participant::Participant(bool json) : loop_(*new Loop), json_(json) {
  OnEndSignals(&loop_, [this](int signo) { OnSignal(signo); });
}

void Participant::Say(absl::string_view text, bool warning) {
  if (json_) {
    const nlohmann::ordered_json line = {{"schema", 1},
                                         {"type", "announcement"},
                                         {"level", warning ? "warning" : "info"},
                                         {"text", std::string(text)}};
    console_.Out(absl::StrCat(JsonText(line), "\n"));
    return;
  }
  console_.Err(absl::StrCat("trainctl: ", text, "\n"));
}

absl::StatusOr<ServiceAddress> Participant::Coordinator() {
  if (part_.tls.certificate.empty() && part_.tls.key.empty()) {
    ASSIGN_OR_RETURN(part_.tls.key, ChooseKeyFile());
  }
  ServiceAddress address;
  address.endpoint = request_->role.endpoint;
  ASSIGN_OR_RETURN(address.identity,
                   LoadIdentity(part_.tls, PeerName::User(geteuid()), kUserValidity));
  return address;
}

int Participant::Run(const LaunchRequest& request,
                     const std::optional<std::string>& daemon_address) {
  request_ = &request;
  if (const absl::Status ready = PrepareGpus(request); !ready.ok()) {
    return Fail(ready);
  }
  part_.part = request.role.part;
  part_.part.gpus = request.spec.gpus;
  part_.tls = request.tls;
  part_.env = request.spec.env;
  part_.cwd = request.spec.cwd;
  if (daemon_address.has_value()) {
    absl::StatusOr<std::optional<std::string>> socket = FindDaemon(daemon_address);
    if (!socket.ok()) {
      return Fail(socket.status());
    }
    daemon_socket_ = *socket;
  }
  absl::StatusOr<ServiceAddress> coordinator = Coordinator();
  if (!coordinator.ok()) {
    return Fail(coordinator.status());
  }
  identity_ = coordinator->identity;
  began_ = Now();
  next_word_ = began_ + kWordEvery;
  enlistment_ = std::make_unique<Enlistment>(
      &loop_, *coordinator, request.role,
      Enlistment::Callbacks{[this](const absl::Status& why) { WaitForIt(why); },
                            [this](absl::StatusOr<Enlisted> answer) { OnAnswer(answer); }});
  return loop_.Run();
}

void Participant::WaitForIt(const absl::Status& why) {
  const Instant now = Now();
  const double waited = ToSeconds(now - began_);
  if (now - began_ >= request_->spec.join_timeout) {
    Say(absl::StrFormat("time-out: no job answered at %s for %.0f s: %s",
                        request_->role.endpoint.ToString(), waited, std::string(why.message())),
        true);
    return loop_.Quit(kExitTimeout);
  }
  if (now < next_word_) {
    return;
  }
  next_word_ = now + kWordEvery;
  Say(absl::StrFormat("waits for node 0 at %s since %.0f s: %s", request_->role.endpoint.ToString(),
                      waited, std::string(why.message())));
}

void Participant::OnAnswer(absl::StatusOr<Enlisted> answer) {
  if (!answer.ok()) {
    return GiveUp(answer.status());
  }
  if (const absl::Status begun = BeginPart(*std::move(answer)); !begun.ok()) {
    GiveUp(begun);
  }
}

void Participant::GiveUp(const absl::Status& why) {
  Say(why.message(), true);
  if (daemon_.has_value()) {
    EndDaemon(&*daemon_);
  }
  loop_.Quit(ExitStatusOf(why));
}

// A name that no other node of the job has here, or on another machine with the same home. The lock
// is ours as long as we live.
absl::Status Participant::TakeName(const std::string& job_id, const std::string& head) {
  const std::string wanted = part_.part.node.empty() ? MachineName() : part_.part.node;
  for (int i = 0; i < kMostNames; ++i) {
    const std::string name = i == 0 ? wanted : absl::StrCat(wanted, "-", i);
    if (name == head) {
      continue;
    }
    const std::string folder = PartFolder(StateFolder(), job_id, name);
    RETURN_IF_ERROR(MakePrivateFolder(folder));
    const std::string path = JoinPath(folder, "lock");
    Fd lock(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
    if (!lock.valid()) {
      return ErrnoStatus(errno, absl::StrCat("create ", path));
    }
    if (flock(lock.get(), LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) {
      name_lock_ = std::move(lock);
      part_.part.node = name;
      return absl::OkStatus();
    }
    // Who gave a name by hand means this one.
    if (!request_->role.part.node.empty()) {
      return absl::AlreadyExistsError(
          absl::StrCat("node ", name, " takes part in job ", job_id, " already"));
    }
  }
  return absl::ResourceExhaustedError(
      absl::StrCat(kMostNames, " nodes called ", wanted, " take part in job ", job_id, " already"));
}

absl::Status Participant::BeginPart(Enlisted enlisted) {
  part_.job = std::move(enlisted);
  RETURN_IF_ERROR(TakeName(part_.job.job_id, part_.job.head));
  if (!daemon_socket_.has_value()) {
    RETURN_IF_ERROR(MakePrivateFolder(SocketFolder()));
    RETURN_IF_ERROR(StartDaemon());
  }
  WatchPart();
  return absl::OkStatus();
}

absl::Status Participant::StartDaemon() {
  const std::string folder = PartFolder(StateFolder(), part_.job.job_id, part_.part.node);
  ASSIGN_OR_RETURN(daemon_, StartPrivateDaemon(JoinPath(folder, "traind.log"), ""));
  daemon_started_ = Now();
  return AwaitDaemon(*daemon_);
}

void Participant::WatchPart() {
  watch_ = std::make_unique<PartWatch>(
      &loop_, daemon_.has_value() ? daemon_->socket : *daemon_socket_, part_,
      PartWatch::Callbacks{[this](const PartStanding& standing) { OnStanding(standing); },
                           [this](const absl::Status& status) { OnEnd(status); }});
}

void Participant::OnStanding(const PartStanding& standing) {
  switch (standing.kind) {
    case PartStanding::Kind::kJoined:
      Say(absl::StrCat("node ", part_.part.node, joined_ ? " is back in job " : " is in job ",
                       part_.job.job_id, ", coordinated by ", part_.job.head, " at ",
                       part_.job.coordinator.ToString(),
                       joined_ ? "" : ", which shows its output"));
      joined_ = true;
      lost_ = false;
      return;
    case PartStanding::Kind::kJoining:
      if (!standing.reason.empty() && !std::exchange(lost_, true)) {
        Say(absl::StrCat("lost the coordinator of job ", part_.job.job_id, ": ", standing.reason,
                         "; the workers here go on until their lease ends"),
            true);
      }
      return;
    case PartStanding::Kind::kOver:
      Say(absl::StrCat("job ", part_.job.job_id, " ", standing.outcome, ": ", standing.reason),
          standing.exit_status != 0);
      break;
    case PartStanding::Kind::kLeft:
      Say(absl::StrCat("node ", part_.part.node, " is not in job ", part_.job.job_id,
                       " any more: ", standing.reason),
          true);
      break;
  }
  end_ = standing;
}

void Participant::OnEnd(const absl::Status& status) {
  if (end_.has_value()) {
    const bool over = end_->kind == PartStanding::Kind::kOver;
    if (!over && lost_ && signal_ == 0 && request_->scheduler.has_value() &&
        request_->scheduler->scheduler == "Slurm") {
      requeue_until_ = Now() + kSlurmNotices;
      return RequeueIfLost();
    }
    return Finish(over ? end_->exit_status : kExitFailed);
  }
  if (!absl::IsUnavailable(status)) {
    return GiveUp(status);
  }
  // A private daemon that dies is started again, and finds the workers by their shim.
  daemon_deaths_ = Now() - daemon_started_ < kQuickDaemonDeath ? daemon_deaths_ + 1 : 1;
  if (!daemon_.has_value() || daemon_deaths_ > kMostDaemonDeaths) {
    return GiveUp(
        absl::UnavailableError(absl::StrCat("lost this node's daemon: ", status.message())));
  }
  kill(daemon_->child.pid, SIGKILL);
  waitpid(daemon_->child.pid, nullptr, 0);
  if (const absl::Status started = StartDaemon(); !started.ok()) {
    return GiveUp(started);
  }
  Say("this node's daemon died; started it again", true);
  loop_.Post([this] { WatchPart(); });
}

// Nobody but us may be left who would have the job started anew.
void Participant::RequeueIfLost() {
  const absl::StatusOr<bool> lost = HasLostFirstNode(*request_->scheduler);
  if (lost.ok() && !*lost && Now() < requeue_until_ && signal_ == 0) {
    loop_.After(kWordEvery, [this] { RequeueIfLost(); });
    return;
  }
  if (!lost.ok()) {
    Say(lost.status().message(), true);
  } else if (*lost && signal_ == 0) {
    const absl::Status requeued = RequeueJob(*request_->scheduler);
    Say(requeued.ok() ? absl::string_view("the job has lost its first node: Slurm is to requeue it")
                      : requeued.message(),
        true);
  }
  Finish(kExitFailed);
}

// Nothing of the job runs here any more; the daemon is about to end.
void Participant::Finish(int status) {
  const bool preempted = status == kExitPreempted;
  const int result = signal_ != 0 && !preempted ? kExitSignalBase + signal_ : status;
  if (!daemon_.has_value()) {
    return loop_.Quit(result);
  }
  loop_.Watch(daemon_->child.pidfd.get(), EPOLLIN, [this, result](uint32_t) {
    loop_.Unwatch(daemon_->child.pidfd.get());
    waitpid(daemon_->child.pid, nullptr, 0);
    loop_.Quit(result);
  });
  loop_.After(kDaemonEnds, [this, result] { loop_.Quit(result); });
}

void Participant::OnSignal(int signo) {
  if (signal_ == 0) {
    signal_ = signo;
  }
  ++signals_;
  if (watch_ == nullptr) {
    return loop_.Quit(kExitSignalBase + signo);
  }
  if (signals_ > 2) {
    return loop_.Quit(kExitSignalBase + signal_);
  }
  const NodeRole& role = request_->role;
  const bool preempted =
      signo == SIGTERM && request_->spec.preemptible && request_->scheduler.has_value();
  if (signals_ == 1 && (preempted || role.min_nodes == role.max_nodes)) {
    return StopJob();
  }
  Leave();
}

void Participant::StopJob() {
  Say(absl::StrCat("SIG", sigabbrev_np(signal_),
                   ": stopping the job, here and on its other nodes; once more ends this node's "
                   "part"),
      true);
  ServiceAddress coordinator;
  coordinator.endpoint = part_.job.coordinator;
  coordinator.identity = identity_;
  coordinator.node = part_.job.head;
  StopAsked order;
  order.by = absl::StrCat(
      signal_ == SIGINT ? std::string("Ctrl-C") : absl::StrCat("SIG", sigabbrev_np(signal_)),
      " on node ", part_.part.node);
  order.notice = signal_ == SIGTERM;
  const absl::Status asked = JobClient(coordinator).Stop(order);
  if (!asked.ok() && !end_.has_value()) {
    Say(absl::StrCat("cannot ask the job to stop: ", asked.message()), true);
    Leave();
  }
}

void Participant::Leave() {
  Say(absl::StrCat("node ", part_.part.node, " leaves job ", part_.job.job_id), true);
  const absl::Status left = NodeClient(daemon_.has_value() ? daemon_->socket : *daemon_socket_)
                                .LeaveJob(part_.job.job_id);
  if (!left.ok() && !absl::IsNotFound(left) && !end_.has_value()) {
    Say(absl::StrCat("cannot leave: ", left.message()), true);
  }
}

}  // namespace trainctl
