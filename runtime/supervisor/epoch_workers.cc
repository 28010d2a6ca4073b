#include "runtime/supervisor/epoch_workers.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/clock.h"
#include "runtime/base/file.h"
#include "runtime/base/log.h"

namespace trainctl {
namespace {

constexpr int kTailLines = 20;
constexpr size_t kErrorJsonBytes = 64 * 1024;
constexpr size_t kDrainBytes = 256 * 1024;   // per wake-up, so that frames are never kept waiting
constexpr size_t kLastDrainBytes = 1 << 20;  // the largest a pipe can usually hold
constexpr Duration kShortestPause = milliseconds(1);
constexpr Duration kLongestPause = milliseconds(50);
// What a worker that ended by itself left behind may clean up (shared memory, for one) this long.
constexpr Duration kStrayGrace = seconds(1);
constexpr Duration kExecPatience = seconds(2);

// The worker owns the path, so it may be anything: a pipe, huge, from an earlier epoch.
std::string ReadErrorJson(const std::string& path, int64_t not_before_ns) {
  const Fd fd(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  struct stat info;
  if (!fd.valid() || ::fstat(fd.get(), &info) < 0 || !S_ISREG(info.st_mode)) return {};
  // File times are as coarse as the kernel's tick.
  constexpr int64_t kTickNs = 20'000'000;
  const int64_t written_ns = int64_t{info.st_mtim.tv_sec} * 1'000'000'000 + info.st_mtim.tv_nsec;
  if (written_ns + kTickNs < not_before_ns) return {};
  std::string text(kErrorJsonBytes, '\0');
  const ssize_t n = ::read(fd.get(), text.data(), text.size());
  text.resize(n > 0 ? static_cast<size_t>(n) : 0);
  return text;
}

}  // namespace

EpochWorkers::EpochWorkers(Loop& loop, frame::StartEpoch start, std::string socket_path,
                           SlotPages& pages, JobCgroup& cgroup, Forwarder& forwarder,
                           Callbacks callbacks)
    : loop_(loop),
      start_(std::move(start)),
      socket_path_(std::move(socket_path)),
      pages_(pages),
      cgroup_(cgroup),
      limited_(cgroup.Limit({start_.memory_limit, start_.process_limit})),
      oom_(cgroup.OomCounters()),
      forwarder_(forwarder),
      callbacks_(std::move(callbacks)),
      kill_pause_(kShortestPause) {
  workers_.resize(start_.workers.size());
  for (size_t i = 0; i < workers_.size(); ++i) workers_[i].launch = std::move(start_.workers[i]);
  start_.workers.clear();
}

EpochWorkers::~EpochWorkers() {
  loop_.Cancel(exec_timer_);
  loop_.Cancel(grace_timer_);
  loop_.Cancel(kill_timer_);
  for (Worker& worker : workers_) {
    loop_.Unwatch(worker.exec_result.get());
    for (OutputStream* stream : {worker.out, worker.err}) {
      if (stream != nullptr) CloseStream(*stream);
    }
  }
}

void EpochWorkers::Start() {
  for (size_t i = 0; i < workers_.size(); ++i) StartWorker(i);
  exec_timer_ = loop_.After(kExecPatience, [this] { OnExecPatienceOver(); });
  CheckStarted();
}

void EpochWorkers::StartWorker(size_t index) {
  Worker& worker = workers_[index];
  if (index >= pages_.pages.size()) {
    return FailToStart(worker, ENOSPC,
                       absl::StrCat("only ", pages_.pages.size(), " slots were reserved here"));
  }
  if (!limited_.ok()) return FailToStart(worker, EPERM, limited_.message());
  if (worker.launch.argv.empty()) return FailToStart(worker, EINVAL, "the command is empty");
  const std::string folder = LogFolder(start_.log_folder, start_.epoch, worker.launch.rank);
  const absl::Status made = MakeFolders(folder);
  if (!made.ok()) NoteLostOutput(worker.launch.rank, made);
  worker.spec.argv = worker.launch.argv;
  worker.spec.cwd = start_.cwd;
  worker.spec.cgroup = cgroup_.fd();
  worker.spec.cgroup_entries = cgroup_.entries();
  worker.spec.cpus = std::move(worker.launch.cpus);
  worker.spec.numa = worker.launch.numa;
  worker.spec.environment = MergeEnvironment(start_.env, worker.launch.env);
  worker.error_file =
      std::string(EnvironmentValue(worker.spec.environment, "TORCHELASTIC_ERROR_FILE"));
  if (worker.error_file.empty()) worker.error_file = folder + "/error.json";
  worker.spec.environment = MergeEnvironment(
      worker.spec.environment,
      {absl::StrCat("TRAINCTL_PAGE=/proc/", pages_.keeper, "/fd/", pages_.fds[index]),
       absl::StrCat("TRAINCTL_SOCKET=", socket_path_),
       absl::StrCat("TORCHELASTIC_ERROR_FILE=", worker.error_file)});
  worker.launch.env.clear();
  pages_.pages[index].Reset(start_.epoch);
  worker.spawned_wall_ns = WallClockNanos();
  absl::StatusOr<WorkerProcess> child = Fork(worker.spec);
  if (!child.ok()) return FailToStart(worker, EAGAIN, child.status().message());
  worker.pid = child->pid;
  StepWorker(worker, SlotEvent::kForked);
  worker.exec_result = std::move(child->exec_result);
  loop_.Watch(worker.exec_result.get(), EPOLLIN,
              [this, &worker](uint32_t) { OnExecResult(worker); });
  worker.out = OpenStream(worker, kStdout, std::move(child->out));
  worker.err = OpenStream(worker, kStderr, std::move(child->err));
}

OutputStream* EpochWorkers::OpenStream(const Worker& worker, uint8_t stream, Fd pipe) {
  OutputStream* opened = forwarder_.Add(std::make_unique<OutputStream>(
      start_.epoch, worker.launch.rank, stream, std::move(pipe),
      LogPath(start_.log_folder, start_.epoch, worker.launch.rank, stream), &forwarder_.quota()));
  loop_.Watch(opened->pipe(), EPOLLIN, [this, opened](uint32_t) { DrainStream(*opened); });
  return opened;
}

void EpochWorkers::FailToStart(Worker& worker, int error, absl::string_view message) {
  worker.spawn_errno = error;
  worker.spawn_error = std::string(message);
  worker.exit_ns = Now().ns;
  StepWorker(worker, SlotEvent::kForkFailed);
}

void EpochWorkers::OnExecResult(Worker& worker) {
  if (!worker.exec_result.valid()) return;
  const ExecResult result = ReadExecResult(worker.exec_result.get(), worker.spec);
  if (result.kind == ExecResult::Kind::kPending) return;
  loop_.Unwatch(worker.exec_result.get());
  worker.exec_result.Close();
  if (result.kind == ExecResult::Kind::kExecuted && !worker.spec.cpus.empty() &&
      !IsBoundTo(worker.pid, worker.spec.cpus)) {
    callbacks_.on_note(worker.launch.rank,
                       "it is not bound to the CPUs of its GPU, which the cgroup does not allow");
  }
  worker.spec = ProcessSpec{};
  if (result.kind == ExecResult::Kind::kFailed) {
    worker.spawn_errno = result.error;
    worker.spawn_error = result.message;
    StepWorker(worker, SlotEvent::kExecFailed);
  } else {
    StepWorker(worker, SlotEvent::kExecuted);
  }
  CheckStarted();
}

void EpochWorkers::CheckStarted() {
  const bool pending = std::any_of(workers_.begin(), workers_.end(),
                                   [](const Worker& w) { return w.exec_result.valid(); });
  if (!pending) BecomeStarted();
}

void EpochWorkers::BecomeStarted() {
  if (std::exchange(started_, true)) return;
  callbacks_.on_started();
  PassOnExits();
}

// One that hangs must not hide the ends of the others.
void EpochWorkers::OnExecPatienceOver() {
  for (const Worker& worker : workers_) {
    if (!worker.exec_result.valid()) continue;
    callbacks_.on_note(worker.launch.rank,
                       absl::StrCat("its program ", worker.spec.argv[0], " is not running after ",
                                    ToSeconds(kExecPatience),
                                    " s: opening it or its folder hangs; is a file server dead?"));
  }
  BecomeStarted();
}

void EpochWorkers::PassOnExits() {
  // Never before the start, so that nobody hears of the end of a worker not yet heard of.
  while (started_ && passed_on_ < exits_.size()) callbacks_.on_exited(exits_[passed_on_++]);
}

void EpochWorkers::StepWorker(Worker& worker, SlotEvent event, Instant grace_until) {
  const SlotDecision decision = worker.slot.Step(event, grace_until);
  switch (decision.action) {
    case SlotAction::kNone:
      break;
    case SlotAction::kTerminate:
      SendToGroup(worker, stop_signal_);
      SendToGroup(worker, SIGCONT);
      break;
    case SlotAction::kKill:
      SendToGroup(worker, SIGKILL);
      break;
    case SlotAction::kReport:
      Report(worker);
      break;
    case SlotAction::kRefuse:
      LogError("slot of rank ", worker.launch.rank, " refused an event while ",
               SlotPhaseName(worker.slot.phase()), ": ", decision.reason);
      break;
  }
  LogDebug("rank ", worker.launch.rank, " is ", SlotPhaseName(worker.slot.phase()), ": ",
           decision.reason);
}

void EpochWorkers::SendToGroup(Worker& worker, int signo) {
  worker.sent.set(static_cast<size_t>(signo));
  // A child that has not yet reached setsid leads no group.
  if (::kill(-worker.pid, signo) < 0) ::kill(worker.pid, signo);
}

void EpochWorkers::Stop(Duration grace, absl::string_view reason, int signo) {
  // Whoever ended before must not look as if we had ended it.
  Reap();
  if (gone_) return;
  LogInfo("stop epoch ", start_.epoch, " with a grace of ", ToMillis(grace), " ms: ", reason);
  if (stop_reason_.empty()) {
    stop_reason_ = std::string(reason);
    stop_signal_ = signo;
  }
  const bool now = grace <= Duration(0);
  const Instant until = now ? Now() : Now() + grace;
  for (Worker& worker : workers_) {
    StepWorker(worker, now ? SlotEvent::kKillRequested : SlotEvent::kStopRequested, until);
  }
  if (now) return BeginKilling();
  ArmGrace(until);
  // Finding strays means reading all of /proc: not before the groups have had their chance.
  if (!strays_terminated_) {
    loop_.Cancel(kill_timer_);
    kill_timer_ = loop_.After(kShortestPause, [this] { TerminateStrays(); });
  }
}

void EpochWorkers::Signal(int signo, const std::vector<int32_t>& ranks) {
  Reap();
  for (Worker& worker : workers_) {
    const bool meant =
        ranks.empty() || std::find(ranks.begin(), ranks.end(), worker.launch.rank) != ranks.end();
    if (!meant || !worker.slot.HasProcess()) continue;
    ::kill(worker.pid, signo);
  }
}

bool EpochWorkers::InWorkerGroup(pid_t group) const {
  return std::any_of(workers_.begin(), workers_.end(), [group](const Worker& worker) {
    return worker.slot.HasProcess() && worker.pid == group;
  });
}

void EpochWorkers::TerminateStrays() {
  if (std::exchange(strays_terminated_, true)) return;
  // Members of a worker's group have had the signal; a second one often means "at once".
  SignalDescendants({SIGTERM, SIGCONT},
                    [this](const Descendant& d) { return !InWorkerGroup(d.group); });
}

void EpochWorkers::ArmGrace(Instant until) {
  if (until >= grace_until_) return;
  grace_until_ = until;
  loop_.Cancel(grace_timer_);
  grace_timer_ = loop_.At(until, [this] { OnGraceOver(); });
}

void EpochWorkers::OnGraceOver() {
  Reap();
  if (gone_) return;
  for (Worker& worker : workers_) StepWorker(worker, SlotEvent::kGraceOver);
  BeginKilling();
}

void EpochWorkers::BeginKilling() {
  if (kill_budget_until_ == kNever) kill_budget_until_ = Now() + kKillBudget;
  cgroup_.Kill();
  KillAgain();
}

// Again for what is forked meanwhile; the pause grows so that a process that cannot die yet costs
// nothing.
void EpochWorkers::KillAgain() {
  loop_.Cancel(kill_timer_);
  kill_timer_ = loop_.After(kill_pause_, [this] {
    Reap();
    if (gone_) return;
    SignalDescendants({SIGKILL}, [](const Descendant&) { return true; });
    if (!budget_spent_ && Now() >= kill_budget_until_) {
      budget_spent_ = true;
      callbacks_.on_unkillable(DescribeDescendants());
    }
    KillAgain();
  });
  kill_pause_ = std::min(kill_pause_ * 2, kLongestPause);
}

void EpochWorkers::Reap() {
  if (gone_) return;
  const bool left =
      ReapChildren([this](const Reaped& reaped) { OnReaped(reaped); },
                   [this](pid_t pid, bool stopped) { callbacks_.on_changed(pid, stopped); });
  AfterReaping(left);
}

void EpochWorkers::OnReaped(const Reaped& reaped) {
  const int64_t now_ns = Now().ns;
  for (Worker& worker : workers_) {
    if (!worker.slot.HasProcess() || worker.pid != reaped.pid) continue;
    OnExecResult(worker);  // what the child wrote before it ended comes first
    worker.exit_ns = now_ns;
    worker.exit.code = reaped.code;
    worker.exit.core = reaped.core;
    if (reaped.signaled) {
      worker.exit.kind = frame::Exit::Kind::kSignaled;
      worker.exit.by_us = reaped.code <= 64 && worker.sent.test(static_cast<size_t>(reaped.code));
    } else {
      worker.exit.kind = frame::Exit::Kind::kExited;
      worker.exit.by_us =
          worker.sent.test(static_cast<size_t>(stop_signal_)) || worker.sent.test(SIGKILL);
    }
    if (worker.exit.by_us) {
      worker.exit.message = stop_reason_;
    } else if (reaped.signaled && reaped.code == SIGKILL) {
      worker.exit.message = oom_.Evidence(reaped.pid);
    }
    StepWorker(worker, SlotEvent::kReaped);
    return;
  }
}

void EpochWorkers::Report(Worker& worker) {
  if (!worker.spawn_error.empty()) {
    worker.exit = frame::Exit{
        frame::Exit::Kind::kSpawnFailed, worker.spawn_errno, false, false,
        absl::StrCat("start worker rank ", worker.launch.rank, ": ", worker.spawn_error)};
  }
  // Without waiting: somebody else may hold the pipe open, and others wait for this record.
  for (OutputStream* stream : {worker.out, worker.err}) {
    if (stream == nullptr) continue;
    stream->Drain(kLastDrainBytes);
    forwarder_.Moved(*stream);
  }
  frame::WorkerExited record{start_.epoch, worker.launch.rank, worker.exit, worker.exit_ns, {}, {}};
  if (worker.err != nullptr) record.output_tail = worker.err->Tail(kTailLines);
  if (worker.spawn_error.empty()) {
    record.error_json = ReadErrorJson(worker.error_file, worker.spawned_wall_ns);
  }
  exits_.push_back(std::move(record));
  PassOnExits();
  callbacks_.on_output();
}

void EpochWorkers::DrainStream(OutputStream& stream) {
  if (!stream.Drain(kDrainBytes)) CloseStream(stream);
  const absl::Status failure = stream.TakeFirstFailure();
  if (!failure.ok()) NoteLostOutput(stream.rank(), failure);
  forwarder_.Moved(stream);
  callbacks_.on_output();
}

void EpochWorkers::NoteLostOutput(int32_t rank, const absl::Status& why) {
  if (!noted_.insert(rank).second) return;
  callbacks_.on_note(rank, absl::StrCat("its output is lost: ", why.message()));
}

void EpochWorkers::CloseStream(OutputStream& stream) {
  if (stream.pipe() < 0) return;
  loop_.Unwatch(stream.pipe());
  stream.ClosePipe();
}

void EpochWorkers::FinishStream(OutputStream& stream) {
  if (stream.pipe() >= 0) stream.Drain(kLastDrainBytes);
  CloseStream(stream);
  forwarder_.Moved(stream);
  if (stream.dropped() > 0) {
    LogWarning("rank ", stream.rank(), ": ", stream.dropped(), " bytes of output dropped");
  }
}

void EpochWorkers::AfterReaping(bool children_left) {
  const bool workers_left = std::any_of(workers_.begin(), workers_.end(),
                                        [](const Worker& w) { return w.slot.HasProcess(); });
  if (workers_left || gone_) return;
  if (children_left) {
    if (kill_budget_until_ != kNever) return;  // the timer goes on
    TerminateStrays();
    ArmGrace(Now() + kStrayGrace);
    return;
  }
  gone_ = true;
  loop_.Cancel(grace_timer_);
  loop_.Cancel(kill_timer_);
  for (const Worker& worker : workers_) {
    for (OutputStream* stream : {worker.out, worker.err}) {
      if (stream != nullptr) FinishStream(*stream);
    }
  }
  callbacks_.on_gone();
}

uint64_t EpochWorkers::OutputBytes(size_t slot) const {
  uint64_t bytes = 0;
  for (const OutputStream* stream : {workers_[slot].out, workers_[slot].err}) {
    if (stream != nullptr) bytes += stream->bytes();
  }
  return bytes;
}

bool EpochWorkers::HasRank(int32_t rank) const {
  return std::any_of(workers_.begin(), workers_.end(),
                     [rank](const Worker& worker) { return worker.launch.rank == rank; });
}

std::vector<frame::SlotState> EpochWorkers::States() const {
  std::vector<frame::SlotState> states;
  for (const Worker& worker : workers_) {
    states.push_back({worker.launch.rank,
                      worker.launch.local_rank,
                      worker.pid,
                      worker.slot.HasProcess(),
                      worker.exit,
                      worker.exit_ns,
                      {},
                      {}});
  }
  for (const frame::WorkerExited& exited : exits_) {
    for (frame::SlotState& state : states) {
      if (state.rank != exited.rank) continue;
      state.output_tail = exited.output_tail;
      state.error_json = exited.error_json;
    }
  }
  return states;
}

}  // namespace trainctl
