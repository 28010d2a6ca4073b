// The Watch streams of a job's front ends.
#ifndef TRAINCTL_LAUNCHER_WATCHERS_H_
#define TRAINCTL_LAUNCHER_WATCHERS_H_

#include <cstddef>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "launcher/output_flow.h"
#include "proto/job.pb.h"
#include "runtime/rpc/streams.h"

namespace trainctl {

using WatchFeed = ServerFeed<v1::JobUpdate>;

// Lives on the loop's thread.
class Watchers {
 public:
  struct Callbacks {
    std::function<v1::JobState()> state;  // what a new watcher gets first
    std::function<void(int owners)> on_owners;
    std::function<void()> on_gone;  // one watcher less
    std::function<void(const std::vector<OutputFlow::Ask>& asks)> on_asks;
  };
  explicit Watchers(Callbacks callbacks) : callbacks_(std::move(callbacks)) {}

  // Takes a feed on which nothing was sent yet.
  void Add(WatchFeed* feed, const v1::WatchRequest& request);
  // To everybody. One whose queue is longer than kMaxQueued is cut off: it comes back, is told the
  // state, and continues its output where it was. Before the first owner comes, the newest
  // kMaxEarly are kept for it.
  void Tell(const v1::JobUpdate& update);
  // The same, but left out where the watcher is behind: a newer one makes up for it.
  void TellIfPrompt(const v1::JobUpdate& update);

  // Output: see OutputFlow. What came together goes on together.
  void OpenEpoch(Epoch epoch, const std::vector<RankPlace>& ranks);
  void NodeHere(const std::string& node, bool here);
  void Output(const std::string& node, v1::OutputBatch batch);
  bool OutputDrained() const { return flow_.Drained(); }

  int count() const { return static_cast<int>(feeds_.size()); }
  bool any_came() const { return next_id_ > 0; }  // since this process began
  // `last` to everybody, to those that come later too. A front end hangs up once it has read it;
  // `on_empty` runs when all have.
  void SayLast(v1::JobUpdate last, std::function<void()> on_empty);
  // An owner that is still connected has not read everything: it is slow, or stopped.
  bool OwnerIsBehind() const;

  static constexpr size_t kRoomBytes = 1 << 20;
  static constexpr size_t kMaxQueued = 16 << 20;
  static constexpr size_t kMaxEarly = 256;

 private:
  struct Watcher {
    WatchFeed* feed = nullptr;
    bool owner = false;
    bool open = true;  // not told to finish yet
  };
  void Send(int id, v1::JobUpdate update);
  void Written(int id);
  void Cancelled(int id);
  void Ask(const std::vector<OutputFlow::Ask>& asks);
  void CountOwners();

  Callbacks callbacks_;
  OutputFlow flow_;
  std::map<int, Watcher> feeds_;
  int next_id_ = 0;
  int owners_ = 0;
  bool owner_came_ = false;
  std::deque<v1::JobUpdate> early_;  // told before an owner came
  std::optional<v1::JobUpdate> last_;
  std::function<void()> on_empty_;
};

}  // namespace trainctl

#endif  // TRAINCTL_LAUNCHER_WATCHERS_H_
