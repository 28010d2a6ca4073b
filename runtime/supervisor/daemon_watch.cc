#include "runtime/supervisor/daemon_watch.h"

#include <algorithm>

namespace trainctl {

DaemonWatch::DaemonWatch(Duration lease)
    : pause_(lease / 20), patience_(std::max<Duration>(lease / 5, kShortestPatience)) {}

void DaemonWatch::Connected(Instant now) {
  Lost();
  heard_ = now;
}

void DaemonWatch::Lost() { heard_ = owes_since_ = asked_ = kNever; }

void DaemonWatch::Heard(Instant now) {
  if (heard_ == kNever) return;
  Connected(now);
}

void DaemonWatch::RequestedLease(Instant now) {
  if (heard_ != kNever) owes_since_ = std::min(owes_since_, now);
}

void DaemonWatch::Asked(Instant now) { asked_ = now; }

Instant DaemonWatch::ask_at() const {
  if (heard_ == kNever || asked_ != kNever) return kNever;
  // Without workers no lease is asked for.
  return owes_since_ != kNever ? owes_since_ + pause_ : heard_ + 10 * pause_;
}

Instant DaemonWatch::hangs_at() const { return asked_ == kNever ? kNever : asked_ + patience_; }

}  // namespace trainctl
