#include "runtime/checkpoint/retention.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "runtime/base/check.h"

namespace trainctl {

RetentionDecision DecideRetention(std::vector<Step> committed, int keep,
                                  std::optional<Step> in_use) {
  CHECK(keep >= 0);
  RetentionDecision decision;
  std::sort(committed.begin(), committed.end());
  committed.erase(std::unique(committed.begin(), committed.end()), committed.end());
  if (keep == 0 || committed.size() <= static_cast<size_t>(keep)) return decision;
  committed.resize(committed.size() - static_cast<size_t>(keep));
  for (Step step : committed) {
    if (step != in_use) decision.may_delete.push_back(step);
  }
  if (!decision.may_delete.empty()) {
    decision.reason = absl::StrCat("older than the newest ", keep, " checkpoints");
  }
  return decision;
}

}  // namespace trainctl
