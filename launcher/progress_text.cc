#include "launcher/progress_text.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace trainctl {

std::string RateText(double per_second) {
  if (per_second >= 1e6) {
    return absl::StrFormat("%.2fM", per_second / 1e6);
  }
  if (per_second >= 1e4) {
    return absl::StrFormat("%.1fk", per_second / 1e3);
  }
  return per_second >= 10 ? absl::StrFormat("%.0f", per_second)
                          : absl::StrFormat("%.2f", per_second);
}

std::string SecondsText(double seconds) {
  const int64_t whole = std::llround(std::clamp(seconds, 0.0, 1e9));
  if (whole >= 3600) {
    return absl::StrFormat("%d:%02d:%02d", whole / 3600, whole / 60 % 60, whole % 60);
  }
  return absl::StrFormat("%d:%02d", whole / 60, whole % 60);
}

std::string CountText(int64_t count, absl::string_view noun) {
  return absl::StrCat(count, " ", noun, count == 1 ? "" : "s");
}

double SecondsLeft(const ProgressSeen& progress) {
  if (progress.total_steps == 0 || progress.step == 0 || progress.samples == 0 ||
      progress.samples_per_second <= 0) {
    return -1;
  }
  const double samples_per_step =
      static_cast<double>(progress.samples) / static_cast<double>(progress.step);
  const uint64_t left = progress.total_steps - std::min(progress.step, progress.total_steps);
  return static_cast<double>(left) * samples_per_step / progress.samples_per_second;
}

std::string ProgressText(const ProgressSeen& progress) {
  std::string text;
  if (progress.data_epoch > 0) {
    absl::StrAppend(&text, absl::StrFormat("epoch %.2f  ", progress.data_epoch));
  }
  absl::StrAppend(&text, "step ", progress.step);
  if (progress.total_steps > 0) {
    absl::StrAppend(&text, "/", progress.total_steps);
  }
  if (progress.loss != 0) {  // 0: no step of this epoch is done yet
    absl::StrAppend(&text, absl::StrFormat("  loss %.4g", progress.loss));
  }
  if (progress.samples_per_second > 0) {
    absl::StrAppend(&text, "  ", RateText(progress.samples_per_second), " samples/s");
  }
  const double left = SecondsLeft(progress);
  if (left >= 0) {
    absl::StrAppend(&text, "  ETA ", SecondsText(left));
  }
  return text;
}

std::string ProgressBar(const ProgressSeen& progress, int columns) {
  if (progress.total_steps == 0 || columns < 5) {
    return "";
  }
  const int inner = columns - 2;
  const double share =
      std::min(1.0, static_cast<double>(progress.step) / static_cast<double>(progress.total_steps));
  const int full = static_cast<int>(share * inner);
  return absl::StrCat("[", std::string(static_cast<size_t>(full), '#'),
                      std::string(static_cast<size_t>(inner - full), '.'), "]");
}

}  // namespace trainctl
