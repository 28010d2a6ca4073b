// A shim, keeper and supervisor, around the real slot, lease and records. It does what
// runtime/supervisor does with processes, sockets and timers of a simulation.
#ifndef TRAINCTL_TESTS_SIM_SHIM_H_
#define TRAINCTL_TESTS_SIM_SHIM_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/local/frames.h"
#include "runtime/supervisor/lease.h"
#include "runtime/supervisor/records.h"
#include "runtime/supervisor/slot.h"
#include "tests/sim/process.h"

namespace trainctl::sim {

class Node;
class World;

class Shim {
 public:
  Shim(World* world, Node* node);

  // ---- By the daemon
  bool listens() const { return supervisor_.alive() && !quitting_; }
  bool alive() const { return keeper_.alive() || supervisor_.alive(); }
  void Hello(uint32_t link, int64_t incarnation);
  void OnFrame(uint32_t link, frame::Frame frame);
  void OnDaemonClosed(uint32_t link);

  // ---- By the machine
  void OnExecuted(int pid, int error);  // 0: the program runs
  void OnEnded();                       // SIGCHLD
  void OnWorkerFrame(int64_t epoch, int rank, frame::Frame frame);
  void SendProgress(int64_t epoch, int64_t step, int64_t total);

  // ---- Faults
  void KillKeeper();
  void KillSupervisor();
  bool CanAct() const { return keeper_.runs() || supervisor_.runs(); }
  Process& keeper() { return keeper_; }
  Process& supervisor() { return supervisor_; }

  // All that an order could have changed.
  std::string Fingerprint() const;
  bool HasWorkers() const { return EpochIsLive(); }
  int64_t term() const { return term_; }
  int64_t epoch() const { return epoch_; }

 private:
  struct Worker {
    frame::Launch launch;
    Slot slot;
    int pid = 0;
    bool exec_pending = false;
    bool told_to_end = false;
    int spawn_errno = 0;
    frame::Exit exit;
    int64_t exit_ns = 0;
    std::string says;
  };

  bool EpochIsLive() const { return epoch_ >= 0 && !gone_; }
  bool TermIsCurrent(int64_t term);
  void OnStartEpoch(const frame::StartEpoch& start);
  void OnStopEpoch(const frame::StopEpoch& stop);
  void OnLeaseAnswer(const frame::LeaseAnswer& answer);
  void OnPageRequest(const frame::PageRequest& request);
  void OnDiagnoseWorkers(const frame::DiagnoseWorkers& ask);
  void StartOrdered();
  void StartWorker(Worker* worker, size_t slot);
  void CheckStarted();
  void StepWorker(Worker* worker, SlotEvent event, Instant grace_until = kNever);
  void Report(Worker* worker);
  void Stop(Duration grace);
  void Reap();
  void AfterReaping();
  void BecomeGone();
  void SendGone();
  void SendLeaseRequest();
  void TellKeeper();
  void Send(frame::Frame frame);
  frame::ShimState State() const;
  void EndAll(Process* survivor);
  void FinishEnd();
  void ArmAbandoned();
  void Release();

  World* world_;
  Node* node_;
  Process keeper_;
  Process supervisor_;
  Lease lease_;
  Records records_;
  int64_t term_ = 0;
  int64_t epoch_ = -1;
  std::optional<frame::StartEpoch> ordered_;  // and not yet confirmed
  Instant ordered_at_;                        // when it was asked whether it holds
  uint64_t order_request_ = 0;
  std::vector<Worker> workers_;
  std::vector<frame::WorkerExited> exits_;
  size_t passed_on_ = 0;
  bool started_ = false;
  bool gone_ = true;
  bool stopped_ = false;  // the workers were told to end
  bool quitting_ = false;
  int port_ = 0;
  uint32_t daemon_link_ = 0;  // 0: no daemon
  int64_t daemon_incarnation_ = 0;
  int64_t last_step_ = -1;
  Process::Timer lease_timer_;      // of the supervisor: when to ask
  Process::Timer grace_timer_;      // of the supervisor
  Process::Timer keeper_timer_;     // the end of the lease
  Process::Timer lease_end_timer_;  // of the supervisor, should the keeper be stopped
  Process::Timer abandon_timer_;    // of the supervisor
};

}  // namespace trainctl::sim

#endif  // TRAINCTL_TESTS_SIM_SHIM_H_
