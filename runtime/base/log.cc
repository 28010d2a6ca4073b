// Header-only spdlog and fmt in this one file: train-shim must stay small and start fast, and the
// shared libraries cost both.
#undef SPDLOG_COMPILED_LIB
#undef SPDLOG_SHARED_LIB
#define FMT_HEADER_ONLY 1
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wconversion"
#include <spdlog/sinks/ansicolor_sink.h>
#include <spdlog/spdlog.h>
#pragma GCC diagnostic pop

#include <cstdlib>
#include <memory>
#include <string>

#include "runtime/base/log.h"

namespace trainctl {
namespace {

spdlog::level::level_enum LevelOf(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return spdlog::level::debug;
    case LogLevel::kInfo:
      return spdlog::level::info;
    case LogLevel::kWarning:
      return spdlog::level::warn;
    case LogLevel::kError:
      return spdlog::level::err;
  }
  return spdlog::level::err;
}

// Never destroyed: a line may still be logged while static objects of others are torn down.
spdlog::logger& Logger() {
  static spdlog::logger& logger =
      *new spdlog::logger("trainctl", std::make_shared<spdlog::sinks::ansicolor_stderr_sink_mt>());
  return logger;
}

}  // namespace

void InitLog(absl::string_view process_name, LogLevel lowest) {
  Logger().set_pattern("%Y-%m-%dT%H:%M:%S.%e " + std::string(process_name) + "[%P] %l: %v");
  const char* wanted = std::getenv("TRAINCTL_LOG");
  Logger().set_level(wanted == nullptr ? LevelOf(lowest) : spdlog::level::from_str(wanted));
  Logger().flush_on(spdlog::level::debug);
}

void Log(LogLevel level, absl::string_view message) {
  Logger().log(LevelOf(level), spdlog::string_view_t(message.data(), message.size()));
}

}  // namespace trainctl
