// Diagnostics of our own processes, to stderr, through spdlog. Thread-safe.
// Results of functions are returned, not logged; a line here is for somebody who reads the log of
// a daemon or a coordinator afterwards.
#ifndef TRAINCTL_RUNTIME_BASE_LOG_H_
#define TRAINCTL_RUNTIME_BASE_LOG_H_

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace trainctl {

enum class LogLevel { kDebug, kInfo, kWarning, kError };

// Names the process in every line ("traind", "coordinator") and takes the lowest level shown from
// TRAINCTL_LOG (debug, info, warning, error), else `lowest`. Call once, first in main.
void InitLog(absl::string_view process_name, LogLevel lowest = LogLevel::kWarning);
void Log(LogLevel level, absl::string_view message);

template <typename... Parts>
void LogDebug(const Parts&... parts) {
  Log(LogLevel::kDebug, absl::StrCat(parts...));
}
template <typename... Parts>
void LogInfo(const Parts&... parts) {
  Log(LogLevel::kInfo, absl::StrCat(parts...));
}
template <typename... Parts>
void LogWarning(const Parts&... parts) {
  Log(LogLevel::kWarning, absl::StrCat(parts...));
}
template <typename... Parts>
void LogError(const Parts&... parts) {
  Log(LogLevel::kError, absl::StrCat(parts...));
}

}  // namespace trainctl

#endif  // TRAINCTL_RUNTIME_BASE_LOG_H_
