#include "runtime/node/prober.h"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <cerrno>
#include <utility>

#include "runtime/base/network.h"
#include "runtime/base/time.h"

namespace trainctl {
namespace {

// Targets of one probe; a node has a handful of addresses.
constexpr int kMaxTargets = 64;

}  // namespace

Prober::~Prober() { Drop(); }

void Prober::Drop() {
  loop_->Cancel(timer_);
  for (const auto& [fd, attempt] : open_) loop_->Unwatch(fd);
  open_.clear();
  running_ = false;
}

void Prober::Begin(const v1::ProbeAddresses& probe) {
  Drop();
  running_ = true;
  reached_.Clear();
  reached_.set_probe(probe.probe());
  int count = 0;
  for (const v1::ProbeAddresses::Target& target : probe.targets()) {
    if (count++ == kMaxTargets) break;
    // Every machine has a loopback, and many a bridge of containers has the same address elsewhere:
    // what answers there is ourselves.
    const bool elsewhere = !probe.machine().empty() && probe.machine() != machine_;
    if (!elsewhere || !IsOwnAddress(target.address())) Try(target);
  }
  timer_ = loop_->After(Duration(probe.patience_ns()), [this] {
    for (const auto& [fd, attempt] : open_) loop_->Unwatch(fd);
    open_.clear();
    FinishIfDone();
  });
  FinishIfDone();
}

void Prober::Try(const v1::ProbeAddresses::Target& target) {
  absl::StatusOr<Fd> socket = BeginConnect({target.address(), target.port()});
  if (!socket.ok()) return;
  const int fd = socket->get();
  open_[fd] = {*std::move(socket), target.address()};
  loop_->Watch(fd, EPOLLOUT, [this, fd](uint32_t) { Settle(fd); });
}

void Prober::Settle(int fd) {
  int error = 0;
  socklen_t size = sizeof(error);
  ::getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size);
  loop_->Unwatch(fd);
  const auto found = open_.find(fd);
  const Attempt attempt = std::move(found->second);
  open_.erase(found);
  Take(attempt, error);
  FinishIfDone();
}

void Prober::Take(const Attempt& attempt, int error) {
  // A port on which nobody listens yet is refused by the very machine that was meant.
  if (error != 0 && error != ECONNREFUSED) return;
  v1::AddressesReached::Reached* reached = reached_.add_reached();
  reached->set_address(attempt.address);
  reached->set_from(AddressTowards(attempt.address));
}

void Prober::FinishIfDone() {
  if (!running_ || !open_.empty()) return;
  running_ = false;
  loop_->Cancel(timer_);
  on_done_(reached_);
}

}  // namespace trainctl
