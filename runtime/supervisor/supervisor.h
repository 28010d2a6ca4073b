// The supervisor: parent of the workers. It speaks runtime/local/frames.h with one daemon and with
// the workers, on one unix socket, and does what it is told; it decides nothing about the job.
#ifndef TRAINCTL_RUNTIME_SUPERVISOR_SUPERVISOR_H_
#define TRAINCTL_RUNTIME_SUPERVISOR_SUPERVISOR_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "runtime/base/fd.h"
#include "runtime/base/loop.h"
#include "runtime/local/cgroup.h"
#include "runtime/local/connection.h"
#include "runtime/local/frames.h"
#include "runtime/supervisor/daemon_watch.h"
#include "runtime/supervisor/epoch_workers.h"
#include "runtime/supervisor/forwarder.h"
#include "runtime/supervisor/hang_detector.h"
#include "runtime/supervisor/keeper.h"
#include "runtime/supervisor/lease.h"
#include "runtime/supervisor/options.h"
#include "runtime/supervisor/port_hold.h"
#include "runtime/supervisor/records.h"

namespace trainctl {

class Supervisor {
 public:
  struct Kept {  // what was made before the fork
    ShimOptions options;
    SlotPages pages;
    Fd listener;
    Fd keeper_link;   // LeaseNote goes here
    Fd keeper_pidfd;  // readable once the keeper is dead
    SocketFile socket_file;
    JobCgroup cgroup;
  };
  // REQUIRES: this process is a subreaper without children, and SIGCHLD, SIGTERM and SIGINT are
  // blocked.
  explicit Supervisor(Kept kept);
  int Run();  // until released, told to end, abandoned, or the keeper died

 private:
  enum class Role { kUnknown, kDaemon, kWorker };
  struct Peer {
    Role role = Role::kUnknown;
    pid_t pid = 0;
    Fd process;  // pidfd of a daemon
    int32_t rank = -1;
    int64_t incarnation = 0;
    std::unique_ptr<Connection> connection;
  };

  // Connections (supervisor.cc).
  void Accept();
  void AddPeer(Fd socket);
  void DropPeer(Peer* peer, absl::string_view reason);
  void OnFrame(Peer* peer, frame::Frame frame);
  void OnHello(Peer* peer, const frame::Hello& hello);
  void WelcomeDaemon(Peer* peer);
  void SendToDaemon(const frame::Frame& frame);

  // Frames of the daemon (supervisor_daemon.cc). Returns false for a frame that only others send.
  bool OnDaemonFrame(frame::Frame& frame);
  bool TermIsCurrent(int64_t term, absl::string_view what);
  void OnStartEpoch(frame::StartEpoch& start);
  void StartOrdered();
  void DropOrder();
  void OnStopEpoch(const frame::StopEpoch& stop);
  void OnLeaseAnswer(const frame::LeaseAnswer& answer);
  void OnDiagnose(const frame::DiagnoseWorkers& diagnose);
  void OnPageRequest(const frame::PageRequest& request);
  void OnExchangeDone(const frame::ExchangeDone& done);
  void OnCommitGranted(const frame::CommitGranted& granted);
  void WatchDaemon();  // whenever daemon_watch_ was told something
  void OnDaemonWatch();
  void EndHangingDaemon();

  // Frames of a worker (supervisor_worker.cc).
  bool OnWorkerFrame(Peer* peer, frame::Frame& frame);

  // The epoch.
  EpochWorkers::Callbacks WorkerCallbacks();
  HangDetector::Callbacks HangCallbacks();
  void OnGone();
  void SendStarted();
  frame::ShimState State() const;
  void SendLeaseRequest();
  void TellKeeper();
  void Pump();
  bool SendProgress();  // false: nothing has moved since the last
  // Pages that move are read this often; pages that do not, ever less often.
  static constexpr Duration kProgressPause = milliseconds(200);
  void ArmProgress(Duration pause = kProgressPause);
  void AddNote(int32_t rank, std::string text);
  bool EpochIsLive() const { return workers_ != nullptr && !workers_->gone(); }

  // The end.
  void OnEndSignal();
  void ArmAbandoned();
  void Release(absl::string_view reason);
  void QuitWhenFlushed();

  Loop loop_;
  Kept kept_;
  std::map<Peer*, std::unique_ptr<Peer>> peers_;
  std::vector<std::unique_ptr<Peer>> buried_;  // destroyed once no callback of theirs runs
  Peer* daemon_ = nullptr;
  DaemonWatch daemon_watch_;
  Forwarder forwarder_;
  std::unique_ptr<EpochWorkers> workers_;  // of the current epoch, kept after it is gone
  std::unique_ptr<HangDetector> hangs_;    // of workers_
  std::string unkillable_;                 // what is left of it against all signals
  Records records_;
  Lease lease_;
  std::optional<frame::StartEpoch> ordered_;  // not yet confirmed
  Instant ordered_at_;                        // when it was asked whether the order still holds
  uint64_t order_request_ = 0;                // by which it was asked
  int64_t term_ = 0;                          // highest seen
  uint64_t refused_ = 0;
  PortHold port_;       // of the current epoch
  PortHold next_port_;  // of the next
  bool gone_sent_ = false;
  bool told_to_end_ = false;  // by a signal
  bool releasing_ = false;
  std::vector<frame::Progress> last_progress_;  // by slot
  Loop::TimerId progress_timer_{};
  Loop::TimerId lease_timer_{};
  Loop::TimerId lease_end_timer_{};
  Loop::TimerId abandoned_timer_{};
  Loop::TimerId daemon_timer_{};
  Loop::TimerId pump_timer_{};
  Instant pump_due_ = kNever;  // when pump_timer_ is
};

}  // namespace trainctl

#endif  // TRAINCTL_RUNTIME_SUPERVISOR_SUPERVISOR_H_
