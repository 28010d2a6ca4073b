// PURE: what workers of the current epoch told the daemon and what must be told again when a daemon
// connects, because the last one may have died with it unread. All of it is idempotent for the
// reader except notes, which are kept only while no daemon is there. Bounded.
#ifndef TRAINCTL_RUNTIME_SUPERVISOR_RECORDS_H_
#define TRAINCTL_RUNTIME_SUPERVISOR_RECORDS_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "runtime/local/frames.h"

namespace trainctl {

class Records {
 public:
  void Reset() { *this = Records(); }

  // A rank that publishes a name again replaces its value and waits for the answer again.
  void Keep(const frame::Exchange& exchange);
  void Keep(const frame::ShardPrepared& prepared);
  void Keep(const frame::CheckpointPublished& published);
  void Keep(const frame::CheckpointRejected& rejected);
  void Keep(const frame::Metric& metric);
  void KeepUnsent(const frame::Note& note);

  // The local ranks that published `name` and have had no answer; each is returned once.
  std::vector<int32_t> TakeWaiting(absl::string_view name);

  std::vector<frame::Exchange> Exchanges() const;
  // Everything else, for a daemon that just connected. Notes are given once.
  std::vector<frame::Frame> TakeForNewDaemon();

  static constexpr size_t kExchangeBytes = size_t{16} << 20;
  static constexpr size_t kShards = 1024;
  static constexpr size_t kRejections = 64;
  static constexpr size_t kMetrics = 4096;
  static constexpr size_t kNotes = 256;

 private:
  struct Published {
    frame::Exchange exchange;
    bool waiting = true;
  };
  std::deque<Published> exchanges_;
  size_t exchange_bytes_ = 0;
  std::deque<frame::ShardPrepared> shards_;
  std::optional<frame::CheckpointPublished> published_;
  std::deque<frame::CheckpointRejected> rejected_;
  std::map<std::pair<int32_t, std::string>, frame::Metric> metrics_;
  std::deque<frame::Note> notes_;
};

}  // namespace trainctl

#endif  // TRAINCTL_RUNTIME_SUPERVISOR_RECORDS_H_
