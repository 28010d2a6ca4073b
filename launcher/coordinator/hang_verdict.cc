#include "launcher/coordinator/hang_verdict.h"

#include <algorithm>
#include <cstddef>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace trainctl {
namespace {

std::string Named(int rank, const std::vector<NodeShare>& nodes) {
  for (const NodeShare& share : nodes) {
    if (rank >= share.first_rank && rank < share.first_rank + share.workers) {
      return absl::StrCat("rank ", rank, " on ", share.node);
    }
  }
  return absl::StrCat("rank ", rank);
}

std::string WhereItIs(const RankEvidence& e) {
  if (e.phase.empty()) return "";
  return absl::StrFormat("; it is in phase %s for %.1f s, after step %d", e.phase,
                         ToSeconds(e.in_phase), e.step.value);
}

// "ranks 3, 4 and 7", at most a few.
std::string NamedRanks(const std::vector<const RankEvidence*>& ranks) {
  constexpr size_t kShown = 5;
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (size_t i = 0; i < std::min(ranks.size(), kShown); ++i) {
    absl::StrAppend(&text, i == 0 ? "" : ", ", ranks[i]->rank);
  }
  if (ranks.size() > kShown) absl::StrAppend(&text, " and ", ranks.size() - kShown, " more");
  return text;
}

}  // namespace

HangVerdict JudgeHang(const HangSuspicion& suspicion, const std::vector<RankEvidence>& evidence,
                      const std::vector<NodeShare>& nodes) {
  std::vector<RankEvidence> ranks = evidence;
  std::sort(ranks.begin(), ranks.end(),
            [](const RankEvidence& a, const RankEvidence& b) { return a.rank < b.rank; });
  for (const RankEvidence& e : ranks) {
    if (!e.stopped) continue;
    return {e.rank, absl::StrCat(Named(e.rank, nodes),
                                 " is stopped by a signal (SIGSTOP or a debugger)", WhereItIs(e))};
  }
  uint64_t newest = 0;
  for (const RankEvidence& e : ranks) newest = std::max(newest, e.collectives);
  std::vector<const RankEvidence*> absent;
  std::vector<const RankEvidence*> waiting;
  for (const RankEvidence& e : ranks) {
    if (e.collectives < newest) absent.push_back(&e);
    if (e.collectives == newest && e.in_collective) waiting.push_back(&e);
  }
  if (!waiting.empty() && !absent.empty()) {
    const RankEvidence& culprit = **std::min_element(
        absent.begin(), absent.end(), [](const RankEvidence* a, const RankEvidence* b) {
          return a->collectives < b->collectives;
        });
    return {culprit.rank,
            absl::StrCat(
                Named(culprit.rank, nodes), " did not enter collective ", newest, " (",
                waiting.front()->collective, "), in which ", NamedRanks(waiting),
                waiting.size() == 1 ? " waits" : " wait",
                absent.size() == 1 ? "" : absl::StrCat("; nor did ", absent.size() - 1, " more"),
                WhereItIs(culprit))};
  }
  if (ranks.size() > 1 && waiting.size() == ranks.size()) {
    return {-1, absl::StrCat("all ", ranks.size(), " ranks wait in collective ", newest, " (",
                             waiting.front()->collective,
                             "), which moves no data: the network between them, or the library")};
  }
  const auto behind = std::min_element(
      ranks.begin(), ranks.end(),
      [](const RankEvidence& a, const RankEvidence& b) { return a.step < b.step; });
  const auto ahead = std::max_element(
      ranks.begin(), ranks.end(),
      [](const RankEvidence& a, const RankEvidence& b) { return a.step < b.step; });
  if (behind != ranks.end() && behind->step < ahead->step) {
    return {behind->rank,
            absl::StrCat(Named(behind->rank, nodes), " is behind: rank ", ahead->rank,
                         " has completed step ", ahead->step.value, WhereItIs(*behind))};
  }
  return {suspicion.rank, absl::StrCat(Named(suspicion.rank, nodes), " ", suspicion.reason)};
}

}  // namespace trainctl
