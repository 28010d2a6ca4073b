#include "runtime/node/libsystemd.h"

#include <dlfcn.h>

#include <type_traits>

#include "absl/strings/str_cat.h"

namespace trainctl {
namespace {

constexpr char kName[] = "libsystemd.so.0";

absl::StatusOr<const Libsystemd*> Load() {
  void* library = ::dlopen(kName, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return absl::NotFoundError(absl::StrCat("load ", ::dlerror()));
  static Libsystemd found;
  const char* missing = nullptr;
  const auto find = [&](const char* name, auto* function) {
    void* symbol = ::dlsym(library, name);
    if (symbol == nullptr && missing == nullptr) missing = name;
    *function = reinterpret_cast<std::remove_pointer_t<decltype(function)>>(symbol);
  };
  find("sd_notify", &found.notify);
  find("sd_watchdog_enabled", &found.watchdog_enabled);
  find("sd_pid_get_unit", &found.pid_get_unit);
  find("sd_pid_get_user_unit", &found.pid_get_user_unit);
  find("sd_bus_open_system", &found.bus_open_system);
  find("sd_bus_open_user", &found.bus_open_user);
  find("sd_bus_close_unref", &found.bus_close_unref);
  find("sd_bus_get_fd", &found.bus_get_fd);
  find("sd_bus_get_events", &found.bus_get_events);
  find("sd_bus_process", &found.bus_process);
  find("sd_bus_match_signal_async", &found.bus_match_signal_async);
  find("sd_bus_call_async", &found.bus_call_async);
  find("sd_bus_message_new_method_call", &found.bus_message_new_method_call);
  find("sd_bus_message_append", &found.bus_message_append);
  find("sd_bus_message_read", &found.bus_message_read);
  find("sd_bus_message_get_error", &found.bus_message_get_error);
  find("sd_bus_message_unref", &found.bus_message_unref);
  if (missing == nullptr) return &found;
  return absl::NotFoundError(
      absl::StrCat("find ", missing, " in ", kName, ": it is older than version 241"));
}

}  // namespace

absl::StatusOr<const Libsystemd*> LoadLibsystemd() {
  static const absl::StatusOr<const Libsystemd*>& loaded =
      *new absl::StatusOr<const Libsystemd*>(Load());
  return loaded;
}

}  // namespace trainctl
