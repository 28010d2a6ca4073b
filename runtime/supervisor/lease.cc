#include "runtime/supervisor/lease.h"

#include <algorithm>

namespace trainctl {
namespace {

constexpr size_t kUnanswered = 16;
constexpr Duration kLongestLease = std::chrono::hours(24);

}  // namespace

void Lease::Begin(Instant asked, Duration length) {
  sent_.clear();
  until_ = asked + length;
}

void Lease::End() {
  sent_.clear();
  until_ = kNever;
}

uint64_t Lease::Request(Instant now) {
  sent_.emplace(++last_id_, now);
  if (sent_.size() > kUnanswered) sent_.erase(sent_.begin());
  return last_id_;
}

bool Lease::Grant(uint64_t request_id, Duration length) {
  const auto found = sent_.find(request_id);
  if (found == sent_.end() || length <= Duration(0) || until_ == kNever) return false;
  const Instant until = found->second + std::min(length, kLongestLease);
  sent_.erase(sent_.begin(), std::next(found));
  if (until <= until_) return false;
  until_ = until;
  return true;
}

}  // namespace trainctl
