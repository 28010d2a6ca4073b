// The nearest known word to one that is not known. Pure.
#ifndef TRAINCTL_LAUNCHER_SUGGEST_H_
#define TRAINCTL_LAUNCHER_SUGGEST_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace trainctl {

// Insertions, deletions, replacements and swaps of neighbours that turn `a` into `b`.
int EditDistance(absl::string_view a, absl::string_view b);

// The nearest of `known` (the first of several equals), or "" if none is near enough to be meant.
std::string Nearest(absl::string_view word, const std::vector<std::string>& known);

// "; did you mean X?" or "".
std::string DidYouMean(absl::string_view word, const std::vector<std::string>& known);

}  // namespace trainctl

#endif  // TRAINCTL_LAUNCHER_SUGGEST_H_
