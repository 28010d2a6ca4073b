#include "runtime/node/pulse.h"

#include <algorithm>

namespace trainctl {
namespace {

constexpr int kMaxScale = 16;

}  // namespace

void Pulse::Asked(Instant now, bool workers_live) {
  // A third of the lease may be over, and a new coordinator needs some of the rest.
  const Duration patience = workers_live ? lease_ * 2 / 5 : lease_;
  hangs_at_ = std::min(hangs_at_, now + patience * scale_);
  // The shim asks every third.
  ask_at_ = now + lease_ / 2;
}

void Pulse::Lost() {
  hangs_at_ = kNever;
  ask_at_ = kNever;
}

void Pulse::Ended() {
  Lost();
  scale_ = std::min(scale_ * 2, kMaxScale);
}

}  // namespace trainctl
