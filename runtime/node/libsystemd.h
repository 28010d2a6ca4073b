// libsystemd, loaded only where systemd started us: linked, it would make every launch 3 ms longer.
#ifndef TRAINCTL_RUNTIME_NODE_LIBSYSTEMD_H_
#define TRAINCTL_RUNTIME_NODE_LIBSYSTEMD_H_

#include <systemd/sd-bus.h>
#include <systemd/sd-daemon.h>
#include <systemd/sd-login.h>

#include "absl/status/statusor.h"

namespace trainctl {

struct Libsystemd {
  decltype(&::sd_notify) notify;
  decltype(&::sd_watchdog_enabled) watchdog_enabled;
  decltype(&::sd_pid_get_unit) pid_get_unit;
  decltype(&::sd_pid_get_user_unit) pid_get_user_unit;
  decltype(&::sd_bus_open_system) bus_open_system;
  decltype(&::sd_bus_open_user) bus_open_user;
  decltype(&::sd_bus_close_unref) bus_close_unref;
  decltype(&::sd_bus_get_fd) bus_get_fd;
  decltype(&::sd_bus_get_events) bus_get_events;
  decltype(&::sd_bus_process) bus_process;
  decltype(&::sd_bus_match_signal_async) bus_match_signal_async;
  decltype(&::sd_bus_call_async) bus_call_async;
  decltype(&::sd_bus_message_new_method_call) bus_message_new_method_call;
  decltype(&::sd_bus_message_append) bus_message_append;
  decltype(&::sd_bus_message_read) bus_message_read;
  decltype(&::sd_bus_message_get_error) bus_message_get_error;
  decltype(&::sd_bus_message_unref) bus_message_unref;
};
// Loads it at the first call and for good; NOT_FOUND says what is missing. Thread-safe.
absl::StatusOr<const Libsystemd*> LoadLibsystemd();

}  // namespace trainctl

#endif  // TRAINCTL_RUNTIME_NODE_LIBSYSTEMD_H_
