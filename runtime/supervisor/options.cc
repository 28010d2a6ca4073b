#include "runtime/supervisor/options.h"

#include <map>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "runtime/base/status.h"

namespace trainctl {
namespace {

absl::StatusOr<int> ParseInt(absl::string_view name, absl::string_view text, int low, int high) {
  int value = 0;
  if (!absl::SimpleAtoi(text, &value) || value < low || value > high) {
    return absl::InvalidArgumentError(
        absl::StrCat("--", name, " is '", text, "'; give a number from ", low, " to ", high));
  }
  return value;
}

absl::StatusOr<Duration> ParseLease(absl::string_view text) {
  absl::Duration parsed;
  if (!absl::ParseDuration(text, &parsed) || parsed < absl::Milliseconds(100) ||
      parsed > absl::Hours(24)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--lease is '", text, "'; give a duration from 100ms to 24h, such as 10s"));
  }
  return Duration(absl::ToInt64Nanoseconds(parsed));
}

constexpr int kMaxDescriptor = 1 << 20;

absl::Status Apply(absl::string_view name, absl::string_view value, ShimOptions& options) {
  if (name == "job") {
    options.job = std::string(value);
  } else if (name == "socket") {
    options.socket = std::string(value);
  } else if (name == "folder") {
    options.folder = std::string(value);
  } else if (name == "slots") {
    ASSIGN_OR_RETURN(options.slots, ParseInt(name, value, 1, kMaxSlots));
  } else if (name == "lease") {
    ASSIGN_OR_RETURN(options.lease, ParseLease(value));
  } else if (name == "daemon-fd") {
    ASSIGN_OR_RETURN(options.daemon_fd, ParseInt(name, value, 3, kMaxDescriptor));
  } else if (name == "ready-fd") {
    ASSIGN_OR_RETURN(options.ready_fd, ParseInt(name, value, 3, kMaxDescriptor));
  } else if (name == "scope-fd") {
    ASSIGN_OR_RETURN(options.scope_fd, ParseInt(name, value, 3, kMaxDescriptor));
  } else if (name == "hold-fds") {
    for (absl::string_view part : absl::StrSplit(value, ',', absl::SkipEmpty())) {
      ASSIGN_OR_RETURN(const int fd, ParseInt(name, part, 3, kMaxDescriptor));
      options.hold_fds.push_back(fd);
    }
  } else {
    return absl::InvalidArgumentError(
        absl::StrCat("unknown option --", name,
                     "; known are --job --socket --folder --slots --lease --daemon-fd --ready-fd "
                     "--scope-fd --hold-fds"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ShimOptions> ParseShimOptions(int argc, char** argv) {
  ShimOptions options;
  for (int i = 1; i < argc; ++i) {
    absl::string_view name = argv[i];
    if (name.size() < 3 || name.substr(0, 2) != "--") {
      return absl::InvalidArgumentError(absl::StrCat("unexpected argument '", name, "'"));
    }
    name.remove_prefix(2);
    const size_t equals = name.find('=');
    if (equals == absl::string_view::npos && i + 1 == argc) {
      return absl::InvalidArgumentError(absl::StrCat("--", name, " needs a value"));
    }
    const absl::string_view value =
        equals == absl::string_view::npos ? argv[++i] : name.substr(equals + 1);
    RETURN_IF_ERROR(Apply(name.substr(0, equals), value, options));
  }
  if (options.job.empty()) return absl::InvalidArgumentError("--job is missing");
  if (options.slots == 0) return absl::InvalidArgumentError("--slots is missing");
  if (options.folder.empty()) return absl::InvalidArgumentError("--folder is missing");
  if (options.socket.empty() || options.socket[0] != '/') {
    return absl::InvalidArgumentError(absl::StrCat(
        "--socket is '", options.socket, "'; give an absolute path, workers open it too"));
  }
  return options;
}

}  // namespace trainctl
