#include "runtime/worker/drift.h"

#include <xxhash.h>

#include <map>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "runtime/base/status.h"

namespace trainctl {
namespace {

uint64_t Digest(const void* data, size_t bytes) { return XXH3_64bits(data, bytes); }

// Ranks whose value is not the most common one; of equally common ones, the lowest rank's counts.
std::vector<int> Odd(const std::vector<uint64_t>& by_rank) {
  std::map<uint64_t, int> votes;
  for (const uint64_t value : by_rank) ++votes[value];
  uint64_t common = by_rank[0];
  for (const uint64_t value : by_rank) {
    if (votes[value] > votes[common]) common = value;
  }
  std::vector<int> odd;
  for (size_t rank = 0; rank < by_rank.size(); ++rank) {
    if (by_rank[rank] != common) odd.push_back(static_cast<int>(rank));
  }
  return odd;
}

}  // namespace

absl::Status CheckReplicas(Communicator& communicator, absl::Span<const NamedTensor> tensors,
                           Step step) {
  const size_t ranks = static_cast<size_t>(communicator.size());
  std::vector<uint64_t> mine;
  for (const NamedTensor& tensor : tensors) {
    mine.push_back(Digest(tensor.data.data(), tensor.data.size() * sizeof(float)));
  }
  const uint64_t combined = Digest(mine.data(), mine.size() * sizeof(uint64_t));
  std::vector<uint64_t> combined_by_rank(ranks);
  RETURN_IF_ERROR(communicator.AllGather(&combined, combined_by_rank.data(), sizeof(combined)));
  if (Odd(combined_by_rank).empty()) return absl::OkStatus();

  std::vector<uint64_t> all(mine.size() * ranks);
  RETURN_IF_ERROR(communicator.AllGather(mine.data(), all.data(), mine.size() * sizeof(uint64_t)));
  for (size_t t = 0; t < tensors.size(); ++t) {
    std::vector<uint64_t> by_rank;
    for (size_t rank = 0; rank < ranks; ++rank) by_rank.push_back(all[rank * mine.size() + t]);
    const std::vector<int> odd = Odd(by_rank);
    if (odd.empty()) continue;
    return absl::DataLossError(absl::StrCat(
        "check that all ranks hold the same parameters: at step ", step.value, " tensor ",
        tensors[t].name, " of rank ", absl::StrJoin(odd, ", "),
        " differs from the other ranks'; suspect the memory of that rank's machine, or code that "
        "changes parameters on one rank only"));
  }
  return absl::InternalError(absl::StrCat("check that all ranks hold the same parameters: at step ",
                                          step.value,
                                          " the ranks give different numbers of tensors"));
}

}  // namespace trainctl
