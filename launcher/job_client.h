// The front end's side of a job: calls to its coordinator, and the stream of what happens.
// This is the only place that retries calls to a coordinator; nobody retries on top.
#ifndef TRAINCTL_LAUNCHER_JOB_CLIENT_H_
#define TRAINCTL_LAUNCHER_JOB_CLIENT_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "launcher/coordinator/action.h"
#include "launcher/coordinator/coordinator.h"
#include "launcher/coordinator/event.h"
#include "runtime/base/ids.h"
#include "runtime/base/loop.h"
#include "runtime/base/time.h"
#include "runtime/rpc/channel.h"

namespace trainctl {

struct JobDescription {
  std::string job_id;
  std::string name;
  JobView view;
  std::string job_folder;
  std::string log_folder;
  std::string checkpoint_folder;
  int coordinator_pid = 0;
  bool detached = false;             // it does not end with its front end
  std::vector<WorkerState> workers;  // of the current epoch, by rank
};
struct OutputBytes {
  Epoch epoch;
  int rank = 0;
  int stream = 1;        // 1 stdout, 2 stderr
  uint64_t offset = 0;   // of data[0] in the log
  uint64_t skipped = 0;  // so many bytes before it are gone
  std::string data;
};
struct ProgressSeen {  // rank 0's page
  Epoch epoch;
  int rank = 0;
  uint64_t step = 0;
  uint64_t total_steps = 0;  // 0: unknown
  uint64_t samples = 0;
  double samples_per_second = 0;  // over the last seconds of this epoch; 0: unknown yet
  double loss = 0;
  double data_epoch = 0;
  uint32_t phase = 0;  // WorkerPhase
  uint32_t resumed = 0;
};
struct MetricSeen {
  Epoch epoch;
  int rank = 0;
  std::string name;
  double value = 0;
};
struct NoteSeen {
  Epoch epoch;
  int rank = 0;
  std::string text;
};
struct JobEnded {
  std::string outcome;  // succeeded failed stopped preempted
  int exit_status = 0;
  std::string reason;
  std::string report_path;
  std::string summary;  // the closing lines for a person
  // Of the workers on the coordinator's node, by local rank; empty: not known.
  std::vector<int> worker_statuses = {};
};
using OutputBatch = std::vector<OutputBytes>;
using JobUpdate = std::variant<JobDescription, Announce, OutputBatch, ProgressSeen, MetricSeen,
                               NoteSeen, JobEnded>;

struct WatchOptions {
  bool output = false;  // also the workers' output, from the beginning of the current epoch
  bool owner = false;   // counts as a front end for the orphan time-out
  // How long a coordinator that cannot be reached is tried again (its daemon restarts it).
  Duration patience = seconds(10);
};

// One watched job. Callbacks run on `loop`'s thread; destroying it there ends the watch silently.
class JobWatch {
 public:
  struct Callbacks {
    // The first update of every connection is a JobDescription, so it comes again after the
    // coordinator was replaced. Output comes once and in order per (epoch, rank, stream), across
    // reconnects too. The next update is read only when this returns: blocking slows the stream.
    std::function<void(JobUpdate update)> on_update;
    // Last. OK after JobEnded; UNAVAILABLE: nobody answered within `patience`.
    std::function<void(const absl::Status& status)> on_end;
  };
  JobWatch(Loop* loop, std::string socket_path, WatchOptions options, Callbacks callbacks);
  ~JobWatch();
  JobWatch(const JobWatch&) = delete;
  JobWatch& operator=(const JobWatch&) = delete;

 private:
  class Stream;
  struct State;
  std::shared_ptr<State> state_;
};

// Asks a job to stop, without waiting; tries for `patience`, long enough for a coordinator that
// hangs to be replaced. `done` runs on `loop`'s thread. REQUIRES: the loop lives until then.
void AskToStop(Loop* loop, const std::string& socket_path, const StopAsked& order,
               Duration patience, std::function<void(const absl::Status& status)> done);

// Calls that wait for their answer. Thread-safe. UNAVAILABLE: nobody listens at the socket;
// DEADLINE_EXCEEDED: no answer in time (every call may be made again).
class JobClient {
 public:
  explicit JobClient(const std::string& socket_path);
  explicit JobClient(ServiceAddress coordinator);
  ~JobClient();

  absl::StatusOr<JobDescription> Describe(Duration timeout = seconds(5));
  // Returns once the coordinator has taken the order; the job ends later.
  absl::Status Stop(const StopAsked& order, Duration timeout = seconds(5));
  // To these ranks; none: to all.
  absl::Status Signal(int signo, const std::vector<int>& ranks, Duration timeout = seconds(5));
  // As if the node lost its power; not the coordinator's own.
  absl::Status KillNode(const std::string& node, Duration timeout = seconds(5));
  absl::Status Drain(const DrainAsked& order, Duration timeout = seconds(5));

 private:
  struct Channel;
  std::unique_ptr<Channel> channel_;
};

}  // namespace trainctl

#endif  // TRAINCTL_LAUNCHER_JOB_CLIENT_H_
