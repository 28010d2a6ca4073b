// Watches the workers of one epoch for hangs and writes down what they are at. Who hangs is decided
// by the coordinator, which sees all nodes.
#ifndef TRAINCTL_RUNTIME_SUPERVISOR_HANG_DETECTOR_H_
#define TRAINCTL_RUNTIME_SUPERVISOR_HANG_DETECTOR_H_

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "runtime/base/fd.h"
#include "runtime/base/loop.h"
#include "runtime/base/time.h"
#include "runtime/local/frames.h"
#include "runtime/supervisor/epoch_workers.h"
#include "runtime/supervisor/hang_watch.h"

namespace trainctl {

// Lives on the loop's thread, not longer than `workers`.
class HangDetector {
 public:
  struct Callbacks {
    std::function<void(int32_t rank, uint64_t step, std::string reason)> on_suspected;
    std::function<void(std::vector<frame::RankEvidence>)> on_diagnosed;
  };
  // `limit`: see HangWatch; negative: nobody is suspected. `log_folder` is that of the epoch's
  // workers.
  HangDetector(Loop& loop, EpochWorkers& workers, const SlotPages& pages, Duration limit,
               std::string log_folder, Callbacks callbacks);
  ~HangDetector();
  HangDetector(const HangDetector&) = delete;
  HangDetector& operator=(const HangDetector&) = delete;

  void Look();  // with each reading of the pages
  void Changed(pid_t pid, bool stopped);
  // Writes RANK/hang.txt for each worker that runs, then calls on_diagnosed once: when the
  // debuggers, if there are any, are done, or after kPatience. Nothing if it is under way.
  void Diagnose();

  static constexpr Duration kPatience = seconds(5);

 private:
  struct Subject {  // one worker that is being looked at
    frame::RankEvidence evidence;
    std::string path;
    std::string text;
    Fd output;    // of its debugger
    Fd debugger;  // pidfd
  };
  void StartDebugger(Subject& subject, pid_t pid);
  void ReadDebugger(Subject& subject);
  void FinishIfDone();
  void Finish();

  Loop& loop_;
  EpochWorkers& workers_;
  const SlotPages& pages_;
  std::string log_folder_;
  Callbacks callbacks_;
  const bool looks_;
  std::vector<HangWatch> watches_;  // by slot
  std::vector<Subject> subjects_;   // not empty: a diagnosis is under way
  Loop::TimerId patience_timer_{};
};

}  // namespace trainctl

#endif  // TRAINCTL_RUNTIME_SUPERVISOR_HANG_DETECTOR_H_
