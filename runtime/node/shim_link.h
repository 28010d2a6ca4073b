// The daemon's side of one shim: starting it or finding it again, the connection, and its death.
#ifndef TRAINCTL_RUNTIME_NODE_SHIM_LINK_H_
#define TRAINCTL_RUNTIME_NODE_SHIM_LINK_H_

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "runtime/base/fd.h"
#include "runtime/base/loop.h"
#include "runtime/base/time.h"
#include "runtime/local/connection.h"
#include "runtime/local/frames.h"
#include "runtime/node/job_scope.h"

namespace trainctl {

struct ShimPlace {
  std::string job_id;
  std::string job_folder;
  std::string socket;
  int slots = 1;
  Duration lease{0};
  std::vector<std::string> gpus;  // UUIDs that the shim keeps locked
  bool scope = false;             // in a scope of its own, if systemd makes one
};

// Lives on the loop's thread. Destroying it leaves the shim alone: it lives on until its lease ends
// or the next daemon comes.
class ShimLink {
 public:
  struct Callbacks {
    // The first frame after every connection is a ShimState.
    std::function<void(frame::Frame frame)> on_frame;
    std::function<void()> on_batch_end;  // all frames that were there have been given
    // The whole shim is dead, and nothing of the workers is left. Start may be called again, though
    // not during the call. `reason` is its own if it could not begin.
    std::function<void(absl::string_view reason)> on_dead;
    // Another, newer daemon has it now.
    std::function<void()> on_taken;
  };
  ShimLink(Loop* loop, ShimPlace place, int64_t incarnation, Callbacks callbacks);
  ~ShimLink();
  ShimLink(const ShimLink&) = delete;
  ShimLink& operator=(const ShimLink&) = delete;

  // Starts a new shim, as soon as nothing is left of an earlier one. It is connected from its first
  // instruction on, so nothing waits for it. RESOURCE_EXHAUSTED: one of the GPUs is in use.
  absl::Status Start();
  // Connects to one that lives. UNAVAILABLE if there is none.
  absl::Status Adopt();
  // Dropped while there is no connection; the state is told again after the next one.
  void Send(const frame::Frame& frame);
  bool alive() const { return pidfd_.valid(); }
  // Kills keeper, supervisor and all that descends from them, before any of them can say a word.
  void KillAtOnce();

 private:
  void Connected(Fd socket);
  void Closed(const absl::Status& why);
  void Reconnect();
  void AdoptOrStart();
  void AskForScope(pid_t shim, Fd gate);
  void WatchProcess(Fd pidfd);
  void Died();
  void TellDead(Instant give_up);

  Loop* loop_;
  const ShimPlace place_;
  const int64_t incarnation_;
  Callbacks callbacks_;
  std::unique_ptr<Connection> connection_;
  Fd pidfd_;                         // of the keeper, which ends last
  Fd ready_;                         // what it says if it cannot begin
  std::unique_ptr<JobScope> scope_;  // of the newest shim that was started
  Fd scope_gate_;                    // the shim waits for its end
  Instant sweep_until_ = kNever;     // what an earlier shim has left is waited for until then
  std::string death_;
  bool connected_ = false;
  bool ours_ = false;
  bool told_of_waiting_ = false;
  int refusals_ = 0;  // connections in a row that ended before the shim's state came
  Loop::TimerId retry_{};
};

}  // namespace trainctl

#endif  // TRAINCTL_RUNTIME_NODE_SHIM_LINK_H_
