// Values as users type them in flags, in the environment and in job files. Pure. Every error is
// INVALID_ARGUMENT and names what was expected; the caller prefixes where the value stood.
#ifndef TRAINCTL_LAUNCHER_FLAG_VALUE_H_
#define TRAINCTL_LAUNCHER_FLAG_VALUE_H_

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "launcher/coordinator/spec.h"
#include "runtime/base/time.h"

namespace trainctl {

// `status` with the place where the value stood.
absl::Status InFlag(absl::string_view flag, const absl::Status& status);

// "500ms", "10s", "5m", "2h"; a bare number is seconds. Not negative.
absl::StatusOr<Duration> ParseDuration(absl::string_view text);

absl::StatusOr<int64_t> ParseInteger(absl::string_view text, int64_t min, int64_t max);
absl::StatusOr<double> ParseNumber(absl::string_view text, double min, double max);

// "N" or "MIN:MAX".
absl::StatusOr<std::pair<int, int>> ParseNodeCount(absl::string_view text);

// "10 in 1h": so many restarts within that time.
struct RestartWindow {
  int restarts = 0;
  Duration within{0};
};
absl::StatusOr<RestartWindow> ParseRestartWindow(absl::string_view text);

// Bytes: "64GiB", "500MB", "1.5TiB", or a bare number.
absl::StatusOr<uint64_t> ParseSize(absl::string_view text);

// The same, or "none": 0.
absl::StatusOr<uint64_t> ParseQuota(absl::string_view text);

// A time in the past: "10m" (so long before `now_wall_ns`) or "2026-01-31T12:00:00Z" (RFC 3339;
// without an offset, local time). Nanoseconds since 1970.
absl::StatusOr<int64_t> ParseSince(absl::string_view text, int64_t now_wall_ns);

// "200 steps" or "200".
absl::StatusOr<int64_t> ParseSteps(absl::string_view text);

// Streams of workers, as torchrun's --redirects and --tee name them: 0 none, 1 stdout, 2 stderr,
// 3 both; for all workers, or "LOCAL_RANK:N,…" for some.
class StreamChoice {
 public:
  static absl::StatusOr<StreamChoice> Parse(absl::string_view text);
  // `stream` is 1 (stdout) or 2 (stderr).
  bool Has(int local_rank, int stream) const;

 private:
  int all_ = 0;
  std::map<int, int> by_rank_;
};

// "0,2-4" -> {0,2,3,4}, ascending, each once.
absl::StatusOr<std::vector<int>> ParseRankList(absl::string_view text);

// "int", "TERM" or "SIGTERM", or a number.
absl::StatusOr<int> ParseSignal(absl::string_view text);

}  // namespace trainctl

#endif  // TRAINCTL_LAUNCHER_FLAG_VALUE_H_
