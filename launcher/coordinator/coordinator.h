// The coordinator of one job: a pure state machine. No clock, thread, file, socket, environment or
// unordered iteration: the same seed and the same calls give the same batches.
//
//   Forming -> Starting -> Running -> Draining -> Forming | Finished
#ifndef TRAINCTL_LAUNCHER_COORDINATOR_COORDINATOR_H_
#define TRAINCTL_LAUNCHER_COORDINATOR_COORDINATOR_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "launcher/coordinator/action.h"
#include "launcher/coordinator/event.h"
#include "launcher/coordinator/journal_record.h"
#include "launcher/coordinator/spec.h"
#include "runtime/base/time.h"

namespace trainctl {

enum class JobPhase { kForming, kStarting, kRunning, kDraining, kFinished };
const char* JobPhaseName(JobPhase phase);

// What `status` shows. A copy.
struct JobView {
  JobPhase phase = JobPhase::kForming;
  Term term;
  Epoch epoch{-1};
  int world_size = 0;
  int restarts = 0;
  Step step;
  Step total_steps;
  Step recovery_point{-1};
  std::vector<RankPlace> ranks;
  std::string explain;
};

class CoordinatorState;

// Not thread-safe; owned by the driver's loop thread.
class Coordinator {
 public:
  explicit Coordinator(JobSpec spec);  // a new job
  ~Coordinator();
  Coordinator(Coordinator&&) noexcept;

  // The state after the journal's records; like a new job if there are none. Nodes are not in the
  // journal: they tell their state when they join again.
  static Coordinator Replay(JobSpec spec, const std::vector<JournalRecord>& records);

  // Called once, before any event: what to do first. TermStarted is in `persist` at once after a
  // replay; a new job's goes with its first record, so that a launch costs one sync.
  void Start(Instant now, int64_t wall_ns, Term term, Batch* batch);
  // `now` never goes back; `wall_ns` is only carried into records. DeadlineReached is to be
  // delivered once next_deadline() has passed.
  void Step(Instant now, int64_t wall_ns, const Event& event, Batch* batch);

  Instant next_deadline() const;  // kNever if none
  // One sentence: what we wait for and why. Never empty while unfinished.
  std::string Explain() const;
  JobView View() const;
  int64_t dropped_messages() const;  // old terms, epochs and incarnations refused at the door

 private:
  std::unique_ptr<CoordinatorState> state_;
};

}  // namespace trainctl

#endif  // TRAINCTL_LAUNCHER_COORDINATOR_COORDINATOR_H_
