// What happened to a job, as report.json and as the closing lines for a person. Filled from the
// journal's records and from what nodes tell; rebuilt from the journal after a restart of the
// coordinator, except for the marks of what only the dead one saw.
#ifndef TRAINCTL_LAUNCHER_REPORT_H_
#define TRAINCTL_LAUNCHER_REPORT_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "launcher/coordinator/journal_record.h"
#include "launcher/coordinator/spec.h"
#include "launcher/job_client.h"
#include "launcher/progress_series.h"
#include "runtime/base/ids.h"
#include "runtime/base/time.h"

namespace trainctl {

// Instants of one epoch; kNever: not known.
struct EpochMarks {
  Instant failed = kNever;  // its first failing worker ended
  Instant condemned = kNever;
  Instant gone = kNever;  // its last process was gone
  Instant formed = kNever;
  Instant spawned = kNever;    // every worker was started
  Instant connected = kNever;  // the last rendezvous before its first step was complete
  Instant loaded = kNever;     // its rank 0 was past its initialisation
  Instant first_step = kNever;
};

// Not thread-safe.
class Report {
 public:
  explicit Report(const JobSpec& spec);

  // Every record of the journal, in order. `now` is kNever for those of an earlier life.
  void Take(const JournalRecord& record, Instant now);
  // Each keeps the first instant that it is told for the epoch, except Connected, the last.
  void Spawned(Epoch epoch, Instant at);
  void Gone(Epoch epoch, Instant at);
  void Connected(Epoch epoch, Instant at);
  void Progress(const ProgressSeen& progress, Instant first_step, Instant now);
  void Plan(std::string json) { plan_ = std::move(json); }  // of the transport, between all nodes
  void Metric(const std::string& name, double value) { metrics_[name] = value; }

  double samples_per_second() const;  // over the last seconds of the current epoch; 0: unknown
  std::string path() const;
  absl::Status Write(int64_t wall_ns) const;  // whole, atomically
  // report.html and timeline.json, of what Write has written or would.
  absl::Status WritePages(int64_t wall_ns) const;
  std::string Json(int64_t wall_ns) const;
  // REQUIRES: Finished was taken.
  std::string Summary() const;

 private:
  struct EpochStory {
    EpochFormed formed;
    std::optional<EpochCondemned> condemned;
    std::optional<EpochReplaced> replaced;
    EpochMarks marks;
    Step last_step{-1};
    int64_t first_step_wall_ns = 0;                     // 0: none
    std::vector<std::pair<Instant, uint64_t>> samples;  // the last seconds, for the rate
    std::pair<Instant, uint64_t> first_samples{kNever, 0};
    std::pair<Instant, uint64_t> last_samples{kNever, 0};
  };
  EpochStory* Find(Epoch epoch);
  const Failure* FirstFailure() const;
  std::string FailureText() const;
  int64_t EndOf(size_t index, int64_t wall_ns) const;
  double EpochRate() const;
  struct Goodput;
  Goodput CountGoodput(int64_t wall_ns) const;
  static std::string CauseOfEnd(const EpochStory& story);

  const JobSpec spec_;
  std::vector<EpochStory> epochs_;
  std::optional<Finished> finished_;
  std::vector<Step> checkpoints_;
  std::map<std::string, double> metrics_;
  std::string plan_;
  ProgressSeries series_;
  std::optional<ProgressSeen> last_progress_;
};

}  // namespace trainctl

#endif  // TRAINCTL_LAUNCHER_REPORT_H_
