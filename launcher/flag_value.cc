#include "launcher/flag_value.h"

#include <cmath>
#include <csignal>
#include <cstring>
#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/time/time.h"
#include "runtime/base/status.h"

namespace trainctl {
namespace {

constexpr double kLongestSeconds = 1e9;  // 31 years, far from overflow in nanoseconds

absl::Status Expected(absl::string_view text, absl::string_view expected) {
  return absl::InvalidArgumentError(
      absl::StrCat("found \"", text.substr(0, 100), "\", expected ", expected));
}

}  // namespace

absl::Status InFlag(absl::string_view flag, const absl::Status& status) {
  return absl::Status(status.code(), absl::StrCat(flag, ": ", status.message()));
}

absl::StatusOr<Duration> ParseDuration(absl::string_view text) {
  constexpr absl::string_view kExpected = "a duration such as 500ms, 10s, 5m or 2h";
  const absl::string_view whole = text;
  double unit = 1;
  if (absl::ConsumeSuffix(&text, "ms")) {
    unit = 1e-3;
  } else if (absl::ConsumeSuffix(&text, "s")) {
    unit = 1;
  } else if (absl::ConsumeSuffix(&text, "m")) {
    unit = 60;
  } else if (absl::ConsumeSuffix(&text, "h")) {
    unit = 3600;
  }
  double number = 0;
  if (text.empty() || !absl::SimpleAtod(text, &number) || !std::isfinite(number) || number < 0 ||
      number * unit > kLongestSeconds) {
    return Expected(whole, kExpected);
  }
  return FromSeconds(number * unit);
}

absl::StatusOr<int64_t> ParseInteger(absl::string_view text, int64_t min, int64_t max) {
  int64_t value = 0;
  if (!absl::SimpleAtoi(text, &value) || value < min || value > max) {
    return Expected(text, absl::StrCat("a whole number from ", min, " to ", max));
  }
  return value;
}

absl::StatusOr<double> ParseNumber(absl::string_view text, double min, double max) {
  double value = 0;
  if (!absl::SimpleAtod(text, &value) || !(value >= min && value <= max)) {
    return Expected(text, absl::StrCat("a number from ", min, " to ", max));
  }
  return value;
}

absl::StatusOr<std::pair<int, int>> ParseNodeCount(absl::string_view text) {
  const std::vector<absl::string_view> parts = absl::StrSplit(text, ':');
  int min = 0;
  int max = 0;
  if (parts.size() > 2 || !absl::SimpleAtoi(parts.front(), &min) ||
      !absl::SimpleAtoi(parts.back(), &max) || min < 1 || max < min || max > kMaxNodes) {
    return Expected(text, absl::StrCat("a number of nodes N, or MIN:MAX, up to ", kMaxNodes));
  }
  return std::make_pair(min, max);
}

absl::StatusOr<RestartWindow> ParseRestartWindow(absl::string_view text) {
  const std::vector<absl::string_view> words = absl::StrSplit(text, ' ', absl::SkipEmpty());
  RestartWindow window;
  if (words.size() != 3 || words[1] != "in" || !absl::SimpleAtoi(words[0], &window.restarts) ||
      window.restarts < 0) {
    return Expected(text, "a number of restarts and a time, such as \"10 in 1h\"");
  }
  ASSIGN_OR_RETURN(window.within, ParseDuration(words[2]));
  return window;
}

absl::StatusOr<uint64_t> ParseSize(absl::string_view text) {
  static constexpr std::pair<absl::string_view, double> kUnits[] = {
      {"KiB", 0x1p10}, {"MiB", 0x1p20}, {"GiB", 0x1p30}, {"TiB", 0x1p40}, {"kB", 1e3},
      {"KB", 1e3},     {"MB", 1e6},     {"GB", 1e9},     {"TB", 1e12},    {"B", 1},
  };
  absl::string_view number = text;
  double unit = 1;
  for (const auto& [name, bytes] : kUnits) {
    if (!absl::ConsumeSuffix(&number, name)) continue;
    unit = bytes;
    break;
  }
  double value = 0;
  const double most = static_cast<double>(std::numeric_limits<int64_t>::max());
  if (!absl::SimpleAtod(absl::StripAsciiWhitespace(number), &value) || !(value * unit >= 1) ||
      !(value * unit < most)) {
    return Expected(text, "a size, such as 64GiB or 500MB");
  }
  return static_cast<uint64_t>(value * unit);
}

absl::StatusOr<uint64_t> ParseQuota(absl::string_view text) {
  if (text == "none") return 0;
  absl::StatusOr<uint64_t> bytes = ParseSize(text);
  return bytes.ok() ? bytes : Expected(text, "a size, such as 64GiB or 500MB, or none");
}

absl::StatusOr<int64_t> ParseSince(absl::string_view text, int64_t now_wall_ns) {
  if (const absl::StatusOr<Duration> ago = ParseDuration(text); ago.ok()) {
    return now_wall_ns - ago->count();
  }
  absl::Time time;
  if (absl::ParseTime("%Y-%m-%d%ET%H:%M:%E*S%Ez", text, &time, nullptr) ||
      absl::ParseTime("%Y-%m-%d%ET%H:%M:%E*S", text, absl::LocalTimeZone(), &time, nullptr)) {
    return absl::ToUnixNanos(time);
  }
  return Expected(text, "how long ago, such as 10m, or a time, such as 2026-01-31T12:00:00Z");
}

absl::StatusOr<int64_t> ParseSteps(absl::string_view text) {
  absl::string_view number = text;
  if (absl::ConsumeSuffix(&number, "steps") || absl::ConsumeSuffix(&number, "step")) {
    number = absl::StripAsciiWhitespace(number);
  }
  int64_t steps = 0;
  if (!absl::SimpleAtoi(number, &steps) || steps < 1 || steps > 1'000'000'000) {
    return Expected(text, "a number of steps, such as \"200 steps\"");
  }
  return steps;
}

absl::StatusOr<StreamChoice> StreamChoice::Parse(absl::string_view text) {
  constexpr absl::string_view kExpected =
      "0 (none), 1 (stdout), 2 (stderr) or 3 (both), or a list LOCAL_RANK:N,…";
  StreamChoice choice;
  if (text.find(':') == absl::string_view::npos) {
    if (!absl::SimpleAtoi(text, &choice.all_) || choice.all_ < 0 || choice.all_ > 3) {
      return Expected(text, kExpected);
    }
    return choice;
  }
  for (absl::string_view part : absl::StrSplit(text, ',')) {
    const std::vector<absl::string_view> pair = absl::StrSplit(part, ':');
    int rank = 0;
    int streams = 0;
    if (pair.size() != 2 || !absl::SimpleAtoi(pair[0], &rank) ||
        !absl::SimpleAtoi(pair[1], &streams) || rank < 0 || rank >= kMaxWorkersPerNode ||
        streams < 0 || streams > 3) {
      return Expected(text, kExpected);
    }
    choice.by_rank_[rank] = streams;
  }
  return choice;
}

bool StreamChoice::Has(int local_rank, int stream) const {
  auto it = by_rank_.find(local_rank);
  return ((it == by_rank_.end() ? all_ : it->second) & stream) != 0;
}

absl::StatusOr<std::vector<int>> ParseRankList(absl::string_view text) {
  constexpr absl::string_view kExpected = "ranks such as 0 or 0,2-4";
  std::set<int> ranks;
  for (absl::string_view part : absl::StrSplit(text, ',')) {
    const std::vector<absl::string_view> ends =
        absl::StrSplit(absl::StripAsciiWhitespace(part), '-');
    int first = 0;
    int last = 0;
    if (ends.size() > 2 || !absl::SimpleAtoi(ends.front(), &first) ||
        !absl::SimpleAtoi(ends.back(), &last) || first < 0 || last < first || last > 1'000'000) {
      return Expected(text, kExpected);
    }
    for (int rank = first; rank <= last; ++rank) {
      ranks.insert(rank);
    }
  }
  return std::vector<int>(ranks.begin(), ranks.end());
}

absl::StatusOr<int> ParseSignal(absl::string_view text) {
  int number = 0;
  if (absl::SimpleAtoi(text, &number)) {
    if (number < 1 || number >= NSIG) {
      return Expected(text, "a signal such as USR1 or 10");
    }
    return number;
  }
  std::string name = absl::AsciiStrToUpper(text);
  absl::string_view bare = name;
  absl::ConsumePrefix(&bare, "SIG");
  for (int signo = 1; signo < NSIG; ++signo) {
    const char* abbreviation = sigabbrev_np(signo);
    if (abbreviation != nullptr && bare == abbreviation) {
      return signo;
    }
  }
  return Expected(text, "a signal such as USR1 or 10");
}

}  // namespace trainctl
