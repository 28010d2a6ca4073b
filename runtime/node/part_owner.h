// The front end to which this node's part in a job belongs: it is told how the part stands, and if
// it goes away and does not come back, the node leaves the job.
#ifndef TRAINCTL_RUNTIME_NODE_PART_OWNER_H_
#define TRAINCTL_RUNTIME_NODE_PART_OWNER_H_

#include <functional>

#include "proto/node.pb.h"
#include "runtime/base/loop.h"
#include "runtime/base/time.h"
#include "runtime/rpc/streams.h"

namespace trainctl {

using PartFeed = ServerFeed<v1::PartUpdate>;

// Lives on the loop's thread.
class PartOwner {
 public:
  // `on_orphaned`: nobody has held a feed for the orphan time-out. Not called from Attach.
  PartOwner(Loop* loop, std::function<void()> on_orphaned)
      : loop_(loop), on_orphaned_(std::move(on_orphaned)) {}
  ~PartOwner();
  PartOwner(const PartOwner&) = delete;
  PartOwner& operator=(const PartOwner&) = delete;

  // A feed on which nothing was sent yet; an older one ends. `orphan_timeout` < 0: no limit.
  void Attach(PartFeed* feed, Duration orphan_timeout);
  void Tell(const v1::PartUpdate& update);
  // The last call. `on_told`, once, when the front end has hung up, or soon if it does not.
  void End(std::function<void()> on_told);

 private:
  void Gone(PartFeed* feed);
  void Release(const absl::Status& status);

  Loop* loop_;
  std::function<void()> on_orphaned_;
  PartFeed* feed_ = nullptr;  // deletes itself; detached before that
  v1::PartUpdate newest_;
  Duration orphan_timeout_{-1};
  Loop::TimerId timer_{};
};

}  // namespace trainctl

#endif  // TRAINCTL_RUNTIME_NODE_PART_OWNER_H_
