// A worker's link to the node it runs on: the worker page and the supervisor's unix socket, found
// through TRAINCTL_PAGE and TRAINCTL_SOCKET. One thread of the session reads the socket; all
// methods are thread-safe.
#ifndef TRAINCTL_RUNTIME_WORKER_SESSION_H_
#define TRAINCTL_RUNTIME_WORKER_SESSION_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "runtime/base/ids.h"
#include "runtime/base/time.h"
#include "runtime/local/frames.h"
#include "runtime/local/page.h"

namespace trainctl {

struct SessionIdentity {
  std::string job_id;
  Epoch epoch;
  int rank = 0;
  int world_size = 1;
  int local_rank = 0;
  int local_world_size = 1;
};

class Session {
 public:
  // Reads RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, TRAINCTL_* of the environment. Without
  // TRAINCTL_SOCKET (a program started by hand): world size must be 1, and the session works alone
  // (a private page, exchanges answered at once, commits granted at once).
  static absl::StatusOr<std::unique_ptr<Session>> FromEnvironment();
  virtual ~Session() = default;

  virtual const SessionIdentity& identity() const = 0;
  virtual WorkerPage& page() = 0;

  // Every rank publishes a value under `name` (unique within the epoch) and gets all ranks' values,
  // by rank. DEADLINE_EXCEEDED names the missing ranks. UNAVAILABLE: the supervisor is gone.
  virtual absl::StatusOr<std::vector<std::string>> Exchange(absl::string_view name,
                                                            absl::string_view value,
                                                            Duration timeout) = 0;

  // Tells the coordinator that this rank's shard of `step` is written and synced. Returns on rank 0
  // once every rank's is and the coordinator granted the commit; elsewhere at once, with no shards.
  virtual absl::StatusOr<frame::CommitGranted> ShardPrepared(Step step, const frame::Shard& shard,
                                                             Duration timeout) = 0;
  virtual void CheckpointPublished(Step step) = 0;  // rank 0, after the rename is durable
  virtual void CheckpointRejected(Step step, absl::string_view reason) = 0;
  virtual void ReportMetric(absl::string_view name, double value) = 0;
  virtual void Note(absl::string_view text) = 0;  // one line for the user

  // Calls `callback` once, on the session's thread, when the supervisor is gone; at once if it
  // already is. An empty one unregisters; when that returns, no callback is running. Never called
  // if the session works alone.
  virtual void OnLost(std::function<void(absl::string_view reason)> callback) = 0;

  bool StopRequested() { return page().stop_requested.load() != 0; }
};

}  // namespace trainctl

#endif  // TRAINCTL_RUNTIME_WORKER_SESSION_H_
