#include "runtime/node/part_owner.h"

#include <memory>
#include <utility>

namespace trainctl {
namespace {

constexpr Duration kHangUpPatience = seconds(1);

}  // namespace

PartOwner::~PartOwner() {
  loop_->Cancel(timer_);
  Release(absl::OkStatus());
}

void PartOwner::Release(const absl::Status& status) {
  if (feed_ == nullptr) return;
  PartFeed* feed = std::exchange(feed_, nullptr);
  feed->on_cancel = nullptr;
  feed->Finish(status);
}

void PartOwner::Attach(PartFeed* feed, Duration orphan_timeout) {
  Release(absl::AbortedError("another front end has taken this node's part over"));
  loop_->Cancel(timer_);
  orphan_timeout_ = orphan_timeout;
  feed_ = feed;
  feed->on_cancel = [this, feed] { Gone(feed); };
  feed->Send(newest_);
}

void PartOwner::Tell(const v1::PartUpdate& update) {
  newest_ = update;
  if (feed_ != nullptr) feed_->Send(update);
}

// What was told last is not delivered yet, and a private daemon is about to end.
void PartOwner::End(std::function<void()> on_told) {
  loop_->Cancel(timer_);
  PartFeed* feed = std::exchange(feed_, nullptr);
  if (feed == nullptr) return loop_->Post(std::move(on_told));
  auto once = std::make_shared<std::function<void()>>(std::move(on_told));
  const auto tell = [once] {
    if (*once) std::exchange(*once, nullptr)();
  };
  feed->on_cancel = nullptr;
  feed->on_closed = tell;
  feed->Finish(absl::OkStatus());
  loop_->After(kHangUpPatience, tell);
}

void PartOwner::Gone(PartFeed* feed) {
  if (feed != feed_) return;
  feed_ = nullptr;
  if (orphan_timeout_ >= Duration(0)) timer_ = loop_->After(orphan_timeout_, on_orphaned_);
}

}  // namespace trainctl
