// A job's coordinator as its daemon sees it: started, watched, started again from its journal.
#ifndef TRAINCTL_RUNTIME_NODE_COORDINATOR_PROCESS_H_
#define TRAINCTL_RUNTIME_NODE_COORDINATOR_PROCESS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "runtime/base/fd.h"
#include "runtime/base/loop.h"
#include "runtime/base/time.h"
#include "runtime/node/job_scope.h"

namespace trainctl {

// Lives on the loop's thread. Destroying it leaves the coordinator alone.
class CoordinatorProcess {
 public:
  struct Callbacks {
    std::function<void()> on_listening;  // after every start
    std::function<void()> on_over;       // it ended by itself: the job is finished
    // It said that it cannot start, or crashed kMaxQuickDeaths times in a row. Last.
    std::function<void(const absl::Status& why)> on_failed;
  };
  static constexpr int kMaxQuickDeaths = 5;

  // `scope`: in a scope of its own, if systemd makes one.
  CoordinatorProcess(Loop* loop, std::string job_id, std::string job_folder, std::string socket,
                     bool scope, Callbacks callbacks);
  ~CoordinatorProcess();
  CoordinatorProcess(const CoordinatorProcess&) = delete;
  CoordinatorProcess& operator=(const CoordinatorProcess&) = delete;

  // Takes over the one that listens at the socket, else starts one. Never blocks on it.
  void Begin();
  // Ends it without a trace of its own: on_over follows. For a job that never began.
  void Kill();
  // Ends one that hangs; another one is started from the journal as soon as it is gone.
  void Replace();

 private:
  bool Adopt();
  void Start();
  void WatchProcess(Fd pidfd);
  void ReadyReadable();
  void Died();
  bool AwaitOther();
  void StopWatchingReady();

  Loop* loop_;
  const std::string job_id_;
  const std::string job_folder_;
  const std::string socket_;
  const bool own_scope_;
  Callbacks callbacks_;
  std::unique_ptr<JobScope> scope_;  // of the newest that was started
  Fd pidfd_;
  Fd ready_;
  bool ours_ = false;
  bool killed_ = false;
  bool hung_ = false;
  absl::Status refused_;  // what it said when it could not start
  Instant started_;
  Instant locked_out_ = kNever;  // since when another one has the journal
  int quick_deaths_ = 0;
  Loop::TimerId retry_{};
};

}  // namespace trainctl

#endif  // TRAINCTL_RUNTIME_NODE_COORDINATOR_PROCESS_H_
