#include "runtime/node/unit.h"

#include <unistd.h>

#include <cstdint>
#include <cstdlib>

#include "absl/strings/numbers.h"
#include "runtime/base/log.h"

namespace trainctl {
namespace {

// One that comes late must not count as missing.
constexpr int64_t kPingsPerTimeout = 3;

}  // namespace

bool IsMainProcessOfUnit() {
  const char* pid = std::getenv("SYSTEMD_EXEC_PID");
  int64_t value = 0;
  return pid != nullptr && absl::SimpleAtoi(pid, &value) && value == ::getpid();
}

Unit::Unit(Loop* loop) : loop_(loop) {
  if (std::getenv("NOTIFY_SOCKET") == nullptr) return;
  const absl::StatusOr<const Libsystemd*> loaded = LoadLibsystemd();
  if (!loaded.ok()) {
    LogError("tell systemd that traind is ready: ", loaded.status().message(),
             "; install libsystemd0");
    return;
  }
  systemd_ = *loaded;
  uint64_t timeout_us = 0;
  if (systemd_->watchdog_enabled(0, &timeout_us) > 0) {
    ping_pause_ = Duration(static_cast<int64_t>(timeout_us) * 1000 / kPingsPerTimeout);
  }
}

Unit::~Unit() { loop_->Cancel(ping_); }

void Unit::Ready() {
  if (systemd_ == nullptr) return;
  systemd_->notify(0, "READY=1");
  if (ping_pause_ > Duration(0)) Ping();
}

void Unit::Stopping() {
  if (systemd_ != nullptr) systemd_->notify(0, "STOPPING=1");
}

void Unit::Ping() {
  systemd_->notify(0, "WATCHDOG=1");
  ping_ = loop_->After(ping_pause_, [this] { Ping(); });
}

}  // namespace trainctl
