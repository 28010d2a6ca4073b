// All output streams of the job on this node, and what the daemon asked of them. Nothing is
// forwarded unasked.
#ifndef TRAINCTL_RUNTIME_SUPERVISOR_FORWARDER_H_
#define TRAINCTL_RUNTIME_SUPERVISOR_FORWARDER_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "runtime/local/frames.h"
#include "runtime/supervisor/log_quota.h"
#include "runtime/supervisor/output.h"

namespace trainctl {

std::string LogFolder(const std::string& log_folder, int64_t epoch, int32_t rank);
std::string LogPath(const std::string& log_folder, int64_t epoch, int32_t rank, uint8_t stream);

// Lives on the loop's thread.
class Forwarder {
 public:
  // From now on `epoch` is the current one and its logs, like those before, lie in `log_folder`.
  // Streams of earlier epochs are closed as soon as what was asked of them is given. All logs
  // together take `log_quota` bytes at most (0: no limit); `ranks` are those that have logs now.
  void BeginEpoch(int64_t epoch, std::string log_folder, uint64_t log_quota = 0,
                  const std::vector<int32_t>& ranks = {});
  LogQuota& quota() { return quota_; }
  // A stream of the current epoch; it lives until the next one begins.
  OutputStream* Add(std::unique_ptr<OutputStream> stream);
  void Moved(const OutputStream& stream);  // it read something, or its pipe was closed
  void EndStart();                         // every stream of the current epoch has been added

  // A request for a log of an epoch to come waits for it; one for a log that was never made is
  // answered with its end at 0.
  void Request(const frame::OutputFrom& from);
  void ForgetRequests();  // the daemon that asked is gone

  // Gives frames that are due, in turn, one stream after the other, while `wants_more` holds.
  // Returns whether all of them were given.
  bool Pump(const std::function<bool()>& wants_more,
            const std::function<void(const frame::Output&)>& give);
  // When there is something to pump that is not yet due; kNever: nothing.
  Instant next_due() const { return waiting_.empty() ? kNever : waiting_.begin()->first; }

 private:
  using Key = std::tuple<int64_t, int32_t, uint8_t>;  // epoch, rank, stream
  static Key KeyOf(const OutputStream& stream);

  void CountEarlierLogs(const std::vector<int32_t>& ranks);

  std::string log_folder_;
  int64_t epoch_ = -1;
  LogQuota quota_;  // of which streams_ know
  std::map<Key, std::unique_ptr<OutputStream>> streams_;
  std::set<Key> ready_;                        // of streams_: has what was asked for, and it is due
  std::set<std::pair<Instant, Key>> waiting_;  // the same, and when it is due
  std::map<Key, frame::OutputFrom> early_;     // asked for before the epoch began
  Key turn_{};                                 // the stream that gave last
};

}  // namespace trainctl

#endif  // TRAINCTL_RUNTIME_SUPERVISOR_FORWARDER_H_
