// One communicator of NCCL, with the rules for calling it kept: never two threads in it, no abort
// while somebody is in it, every wait with a deadline, nothing after a failure.
//
// One thread at a time calls it; Fail may be called from any. Whoever waits in here when it fails
// wakes at once. NCCL's abort is made by Fail's caller, or, if a thread is inside NCCL at that
// moment, by that thread as soon as it comes out.
//
// Polled: no call stays inside NCCL. Blocking: NCCL starts no thread for a call, but a peer that is
// lost at the wrong moment can hold a call; the beginning and the end then run on a thread that is
// left behind when the time is over, and the process has to end.
#ifndef TRAINCTL_RUNTIME_NCCL_NCCL_LINK_H_
#define TRAINCTL_RUNTIME_NCCL_NCCL_LINK_H_

#include <atomic>
#include <functional>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "runtime/base/mutex.h"
#include "runtime/base/time.h"
#include "runtime/nccl/nccl_api.h"

namespace trainctl {

class NcclLink {
 public:
  // `api` outlives the link. `name` is for NCCL's own log. `enter` makes this rank's GPU the
  // calling thread's; it is called on threads of the link, also after the link's end.
  NcclLink(const NcclApi* api, bool blocking, std::string name,
           std::function<absl::Status()> enter);
  // After a success: finishes and frees, for up to five seconds, after which it aborts.
  ~NcclLink();

  // Collective. DEADLINE_EXCEEDED if it is not done by then; `doing` names it.
  absl::Status Connect(const NcclUniqueId& id, int rank, int size, Instant deadline);

  // Calls `call` and waits until NCCL has taken it, not until the GPU has done it.
  absl::Status Call(absl::string_view doing, const std::function<NcclResult(NcclComm)>& call,
                    Instant deadline) ABSL_LOCKS_EXCLUDED(mutex_);
  // Waits until `done` says so, for what NCCL does meanwhile. `done` is called on this thread.
  absl::Status Wait(absl::string_view doing, const std::function<absl::StatusOr<bool>()>& done,
                    Instant deadline) ABSL_LOCKS_EXCLUDED(mutex_);

  // The first failure wins; every call after it returns that. OK: none yet.
  void Fail(absl::Status status) ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status failure() const ABSL_LOCKS_EXCLUDED(mutex_);

  // Status of a result that is neither success nor in progress, with NCCL's own last words.
  absl::Status StatusOf(NcclResult result, absl::string_view doing) const;

 private:
  enum class Stage { kUnmade, kMade, kGone };

  absl::Status Enter() ABSL_LOCKS_EXCLUDED(mutex_);
  void Leave() ABSL_LOCKS_EXCLUDED(mutex_);
  void AbortAsEntered() ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status Settle(absl::string_view doing, NcclResult result, Instant deadline);
  absl::Status FailWith(absl::Status status);
  absl::StatusOr<NcclResult> AsyncError();
  absl::Status ConnectOnThread(const NcclUniqueId& id, int rank, int size, Instant deadline);
  void FinishOnThread();

  const NcclApi* const api_;
  const bool blocking_;
  const std::string name_;
  const std::function<absl::Status()> enter_;
  NcclComm comm_ = nullptr;  // whoever has entered
  mutable Mutex mutex_;      // never held during a call of NCCL
  bool inside_ ABSL_GUARDED_BY(mutex_) = false;
  Stage stage_ ABSL_GUARDED_BY(mutex_) = Stage::kUnmade;
  absl::Status failure_ ABSL_GUARDED_BY(mutex_);
  std::atomic<bool> failed_{false};  // same as !failure_.ok(), for the fast path
};

// Whether some communicator of this process was aborted, which some versions do not survive.
bool NcclWasAborted();

}  // namespace trainctl

#endif  // TRAINCTL_RUNTIME_NCCL_NCCL_LINK_H_
