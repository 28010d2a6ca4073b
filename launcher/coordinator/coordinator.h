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

// Where a node stands in the job.
enum class NodeStanding {
  kExpected,  // named by the user, never here
  kReady,     // here, and gets workers when the next epoch is formed
  kSpare,     // here without workers, beside the members of a living epoch
  kMember,    // has ranks in the current epoch
  kLate,      // a member that is not connected; its lease still runs
  kLost,      // its lease ended
  kFenced,    // here with workers of an epoch that is over
  kAway,      // not connected, without workers
  kDrained,   // here, and gets no workers (again)
  kUnfit,     // here, and not used: `reason`
};
const char* NodeStandingName(NodeStanding standing);  // "expected", "ready", …

struct NodeView {
  std::string node;
  NodeStanding standing = NodeStanding::kExpected;
  std::string address;
  int slots = 0;
  int workers = 0;     // in the current epoch
  Instant since;       // of this standing
  std::string reason;  // why, where that is not plain; else empty
};

// What `status` shows. A copy: its cost grows with nodes and ranks.
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
  std::vector<NodeView> nodes;  // in numeric order of their names
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
  // One sentence: what we wait for, since when, and why. Never empty. `now` as in Step.
  std::string Explain(Instant now) const;
  JobView View(Instant now) const;
  Epoch epoch() const;  // the newest; -1 = none yet
  JobPhase phase() const;
  int64_t dropped_messages() const;  // old terms, epochs and incarnations refused at the door

 private:
  std::unique_ptr<CoordinatorState> state_;
};

}  // namespace trainctl

#endif  // TRAINCTL_LAUNCHER_COORDINATOR_COORDINATOR_H_
