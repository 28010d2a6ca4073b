#include "runtime/node/libsystemd.h"

#include <dlfcn.h>

#include "absl/strings/str_cat.h"
#include "runtime/base/symbols.h"

namespace trainctl {
namespace {

constexpr char kName[] = "libsystemd.so.0";

absl::StatusOr<const Libsystemd*> Load() {
  void* library = ::dlopen(kName, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return absl::NotFoundError(absl::StrCat("load ", ::dlerror()));
  static Libsystemd found;
  Symbols symbols(library);
  symbols.Required("sd_notify", &found.notify);
  symbols.Required("sd_watchdog_enabled", &found.watchdog_enabled);
  symbols.Required("sd_pid_get_unit", &found.pid_get_unit);
  symbols.Required("sd_pid_get_user_unit", &found.pid_get_user_unit);
  symbols.Required("sd_bus_open_system", &found.bus_open_system);
  symbols.Required("sd_bus_open_user", &found.bus_open_user);
  symbols.Required("sd_bus_close_unref", &found.bus_close_unref);
  symbols.Required("sd_bus_get_fd", &found.bus_get_fd);
  symbols.Required("sd_bus_get_events", &found.bus_get_events);
  symbols.Required("sd_bus_process", &found.bus_process);
  symbols.Required("sd_bus_match_signal_async", &found.bus_match_signal_async);
  symbols.Required("sd_bus_call_async", &found.bus_call_async);
  symbols.Required("sd_bus_message_new_method_call", &found.bus_message_new_method_call);
  symbols.Required("sd_bus_message_append", &found.bus_message_append);
  symbols.Required("sd_bus_message_read", &found.bus_message_read);
  symbols.Required("sd_bus_message_get_error", &found.bus_message_get_error);
  symbols.Required("sd_bus_message_unref", &found.bus_message_unref);
  if (symbols.missing().empty()) return &found;
  return absl::NotFoundError(
      absl::StrCat("find ", symbols.missing(), " in ", kName, ": it is older than version 241"));
}

}  // namespace

absl::StatusOr<const Libsystemd*> LoadLibsystemd() {
  static const absl::StatusOr<const Libsystemd*>& loaded =
      *new absl::StatusOr<const Libsystemd*>(Load());
  return loaded;
}

}  // namespace trainctl
