// The workers of one epoch on this node, from fork until no descendant is left. What happens to
// each is decided by its Slot; this class does it and keeps the exit records.
#ifndef TRAINCTL_RUNTIME_SUPERVISOR_EPOCH_WORKERS_H_
#define TRAINCTL_RUNTIME_SUPERVISOR_EPOCH_WORKERS_H_

#include <sys/types.h>

#include <bitset>
#include <csignal>
#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "runtime/base/fd.h"
#include "runtime/base/loop.h"
#include "runtime/base/time.h"
#include "runtime/local/cgroup.h"
#include "runtime/local/frames.h"
#include "runtime/local/page.h"
#include "runtime/supervisor/containment.h"
#include "runtime/supervisor/forwarder.h"
#include "runtime/supervisor/oom_watch.h"
#include "runtime/supervisor/output.h"
#include "runtime/supervisor/process.h"
#include "runtime/supervisor/slot.h"

namespace trainctl {

// What the shim lends to its workers, one page per slot.
struct SlotPages {
  pid_t keeper = 0;      // the pages' descriptors are open in this process
  std::vector<int> fds;  // there
  std::vector<MappedPage> pages;
};

// Lives on the loop's thread. REQUIRES: this process is a subreaper and has no other children.
class EpochWorkers {
 public:
  // Called from Start, Stop, Reap and the loop; none of them may destroy this object.
  struct Callbacks {
    // Each worker was executed or failed, or one hangs in between; once.
    std::function<void()> on_started;
    std::function<void(const frame::WorkerExited&)> on_exited;
    std::function<void()> on_gone;  // no descendant is left; once, last
    std::function<void()> on_output;
    std::function<void(int32_t rank, std::string text)> on_note;
    std::function<void(pid_t pid, bool stopped)> on_changed;  // by SIGSTOP, SIGCONT and the like
    // What SIGKILL has not ended within kKillBudget, described; once. on_gone may still follow.
    std::function<void(std::string which)> on_unkillable;
  };
  static constexpr Duration kKillBudget = seconds(5);

  EpochWorkers(Loop& loop, frame::StartEpoch start, std::string socket_path, SlotPages& pages,
               JobCgroup& cgroup, Forwarder& forwarder, Callbacks callbacks);
  ~EpochWorkers();
  EpochWorkers(const EpochWorkers&) = delete;
  EpochWorkers& operator=(const EpochWorkers&) = delete;

  void Start();  // a Reap must follow, for there may be no child that ends
  // `signo` (SIGTERM, or SIGABRT) now and SIGKILL after `grace`; zero: SIGKILL now. A later call
  // can only shorten it. The first `reason` is in the records of those that end by it: "because
  // REASON".
  void Stop(Duration grace, absl::string_view reason, int signo = SIGTERM);
  // To the main processes of the workers with these ranks; empty: of all.
  void Signal(int signo, const std::vector<int32_t>& ranks);
  void Reap();  // after Start and SIGCHLD

  int64_t epoch() const { return start_.epoch; }
  bool started() const { return started_; }
  bool gone() const { return gone_; }
  bool HasRank(int32_t rank) const;
  size_t size() const { return workers_.size(); }
  int32_t RankOf(size_t slot) const { return workers_[slot].launch.rank; }
  bool IsRunning(size_t slot) const { return workers_[slot].slot.HasProcess(); }
  pid_t PidOf(size_t slot) const { return workers_[slot].pid; }  // REQUIRES: IsRunning
  uint64_t OutputBytes(size_t slot) const;                       // printed so far
  std::vector<frame::SlotState> States() const;

 private:
  struct Worker {
    frame::Launch launch;
    Slot slot;
    ProcessSpec spec;  // until exec is over
    pid_t pid = 0;
    Fd exec_result;
    OutputStream* out = nullptr;
    OutputStream* err = nullptr;
    std::string error_file;
    int64_t spawned_wall_ns = 0;
    std::bitset<65> sent;  // signals by which we end it; not those that a user passes on
    std::string spawn_error;
    int spawn_errno = 0;
    frame::Exit exit;
    int64_t exit_ns = 0;
  };

  void StartWorker(size_t index);
  OutputStream* OpenStream(const Worker& worker, uint8_t stream, Fd pipe);
  void FailToStart(Worker& worker, int error, absl::string_view message);
  void OnExecResult(Worker& worker);
  void StepWorker(Worker& worker, SlotEvent event, Instant grace_until = kNever);
  void SendToGroup(Worker& worker, int signo);
  void OnReaped(const Reaped& reaped);
  void Report(Worker& worker);
  void DrainStream(OutputStream& stream);
  void CloseStream(OutputStream& stream);
  void FinishStream(OutputStream& stream);
  void NoteLostOutput(int32_t rank, const absl::Status& why);  // once per rank
  void CheckStarted();
  void BecomeStarted();
  void OnExecPatienceOver();
  void PassOnExits();
  void AfterReaping(bool children_left);
  void TerminateStrays();
  void ArmGrace(Instant until);
  void OnGraceOver();
  void BeginKilling();
  void KillAgain();
  bool InWorkerGroup(pid_t group) const;

  Loop& loop_;
  frame::StartEpoch start_;
  std::string socket_path_;
  SlotPages& pages_;
  JobCgroup& cgroup_;
  absl::Status limited_;  // not OK: no worker can start
  OomWatch oom_;
  Forwarder& forwarder_;  // owns the streams
  Callbacks callbacks_;
  std::vector<Worker> workers_;
  std::vector<frame::WorkerExited> exits_;
  size_t passed_on_ = 0;  // of exits_
  std::set<int32_t> noted_;
  std::string stop_reason_;
  int stop_signal_ = SIGTERM;
  bool started_ = false;
  bool gone_ = false;
  Instant kill_budget_until_ = kNever;  // kNever: nothing is being killed yet
  bool budget_spent_ = false;
  bool strays_terminated_ = false;
  Instant grace_until_ = kNever;
  Loop::TimerId exec_timer_{};
  Loop::TimerId grace_timer_{};
  Loop::TimerId kill_timer_{};  // the next walk through what is left
  Duration kill_pause_;
};

}  // namespace trainctl

#endif  // TRAINCTL_RUNTIME_SUPERVISOR_EPOCH_WORKERS_H_
