#include "launcher/slot_loan.h"

#include <algorithm>
#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "runtime/base/status.h"

namespace trainctl {
namespace {

constexpr int kMostCpus = 65536;
constexpr char kUnset = '-';
constexpr char kSet = '=';

absl::StatusOr<int> ParseNumber(absl::string_view text, absl::string_view what) {
  int number = 0;
  if (!absl::SimpleAtoi(text, &number) || number < 0 || number >= kMostCpus) {
    return absl::InvalidArgumentError(
        absl::StrCat("a task's loan: found ", what, " \"", text, "\", expected a number"));
  }
  return number;
}

}  // namespace

std::string FormatSlotLoan(const SlotLoan& loan) {
  return absl::StrCat(loan.local_id, "\n", absl::StrJoin(loan.cpus, ","), "\n",
                      loan.gpus.has_value() ? absl::StrCat(std::string(1, kSet), *loan.gpus)
                                            : std::string(1, kUnset),
                      "\n");
}

absl::StatusOr<SlotLoan> ParseSlotLoan(absl::string_view text) {
  const std::vector<absl::string_view> lines = absl::StrSplit(text, '\n');
  if (lines.size() != 4 || !lines[3].empty() || lines[2].empty() ||
      (lines[2][0] != kSet && lines[2] != absl::string_view(&kUnset, 1))) {
    return absl::InvalidArgumentError(
        absl::StrCat("a task's loan: found \"", text, "\", expected three lines"));
  }
  SlotLoan loan;
  ASSIGN_OR_RETURN(loan.local_id, ParseNumber(lines[0], "task"));
  for (const absl::string_view cpu : absl::StrSplit(lines[1], ',', absl::SkipEmpty())) {
    ASSIGN_OR_RETURN(const int number, ParseNumber(cpu, "processor"));
    loan.cpus.push_back(number);
  }
  if (lines[2][0] == kSet) loan.gpus = std::string(lines[2].substr(1));
  return loan;
}

absl::StatusOr<JoinedSlots> JoinSlots(std::vector<SlotLoan> loans, int gpus_on_node) {
  std::sort(loans.begin(), loans.end(),
            [](const SlotLoan& a, const SlotLoan& b) { return a.local_id < b.local_id; });
  std::set<int> cpus;
  std::vector<std::string> gpus;
  bool any_set = false;
  for (const SlotLoan& loan : loans) {
    cpus.insert(loan.cpus.begin(), loan.cpus.end());
    any_set = any_set || loan.gpus.has_value();
    for (absl::string_view gpu : absl::StrSplit(loan.gpus.value_or(""), ',')) {
      gpu = absl::StripAsciiWhitespace(gpu);
      if (gpu.empty() || std::find(gpus.begin(), gpus.end(), gpu) != gpus.end()) continue;
      gpus.emplace_back(gpu);
    }
  }
  JoinedSlots joined;
  joined.cpus.assign(cpus.begin(), cpus.end());
  if (!any_set) return joined;
  joined.gpus = absl::StrJoin(gpus, ",");
  if (static_cast<int>(gpus.size()) < gpus_on_node) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the ", loans.size(), " tasks on this node see ", gpus.size(), " of its ", gpus_on_node,
        " GPUs (CUDA_VISIBLE_DEVICES ", *joined.gpus,
        "): each is confined to its own, and no process can use all; give them to the node "
        "(--gpus-per-node, --gpu-bind=none) instead of to tasks (--gpus-per-task), or start one "
        "task on each node"));
  }
  return joined;
}

}  // namespace trainctl
