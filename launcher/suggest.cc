#include "launcher/suggest.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace trainctl {

int EditDistance(absl::string_view a, absl::string_view b) {
  const size_t width = b.size() + 1;
  std::vector<int> before(width);
  std::vector<int> previous(width);
  std::vector<int> current(width);
  for (size_t j = 0; j < width; ++j) {
    previous[j] = static_cast<int>(j);
  }
  for (size_t i = 1; i <= a.size(); ++i) {
    current[0] = static_cast<int>(i);
    for (size_t j = 1; j < width; ++j) {
      const int replaced = previous[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      current[j] = std::min({previous[j] + 1, current[j - 1] + 1, replaced});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        current[j] = std::min(current[j], before[j - 2] + 1);
      }
    }
    std::swap(before, previous);
    std::swap(previous, current);
  }
  return previous[b.size()];
}

std::string Nearest(absl::string_view word, const std::vector<std::string>& known) {
  if (word.size() > 100) {
    return "";
  }
  std::string best;
  int best_distance = std::max<int>(1, static_cast<int>(word.size()) / 3) + 1;
  for (const std::string& candidate : known) {
    const int distance = EditDistance(word, candidate);
    if (distance < best_distance) {
      best_distance = distance;
      best = candidate;
    }
  }
  if (!best.empty()) {
    return best;
  }
  // Far by letters, but begun alike: "--nprocs" for "--nproc-per-node".
  const size_t least = std::max<size_t>(3, (word.size() * 3 + 3) / 4);
  size_t most = least - 1;
  for (const std::string& candidate : known) {
    const size_t alike = static_cast<size_t>(
        std::mismatch(word.begin(), word.end(), candidate.begin(), candidate.end()).first -
        word.begin());
    if (alike > most) {
      most = alike;
      best = candidate;
    }
  }
  return best;
}

std::string DidYouMean(absl::string_view word, const std::vector<std::string>& known) {
  const std::string nearest = Nearest(word, known);
  return nearest.empty() ? "" : absl::StrCat("; did you mean ", nearest, "?");
}

}  // namespace trainctl
