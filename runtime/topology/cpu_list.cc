#include "runtime/topology/cpu_list.h"

#include <algorithm>
#include <cstdint>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace trainctl {

std::optional<std::vector<int>> ParseCpuList(absl::string_view text) {
  std::vector<int> cpus;
  for (absl::string_view part : absl::StrSplit(absl::StripAsciiWhitespace(text), ',')) {
    if (part.empty()) {
      continue;
    }
    const std::pair<absl::string_view, absl::string_view> ends =
        absl::StrSplit(part, absl::MaxSplits('-', 1));
    int first, last;
    if (!absl::SimpleAtoi(ends.first, &first) || first < 0) {
      return std::nullopt;
    }
    last = first;
    if (part.find('-') != absl::string_view::npos && !absl::SimpleAtoi(ends.second, &last)) {
      return std::nullopt;
    }
    if (last < first || last >= kMostCpus || cpus.size() > kMostCpus) {
      return std::nullopt;
    }
    for (int cpu = first; cpu <= last; ++cpu) {
      cpus.push_back(cpu);
    }
  }
  std::sort(cpus.begin(), cpus.end());
  cpus.erase(std::unique(cpus.begin(), cpus.end()), cpus.end());
  return cpus;
}

std::string CpuListText(const std::vector<int>& cpus) {
  std::string text;
  for (size_t i = 0; i < cpus.size();) {
    size_t end = i + 1;
    while (end < cpus.size() && cpus[end] == cpus[end - 1] + 1) {
      ++end;
    }
    absl::StrAppend(&text, text.empty() ? "" : ",", cpus[i]);
    if (end > i + 1) {
      absl::StrAppend(&text, "-", cpus[end - 1]);
    }
    i = end;
  }
  return text;
}

std::optional<std::vector<int>> ParseCpuMask(absl::string_view text) {
  const std::vector<absl::string_view> words = absl::StrSplit(text, ',');
  if (words.size() > kMostCpus / 32) {
    return std::nullopt;
  }
  std::vector<int> cpus;
  for (size_t i = 0; i < words.size(); ++i) {
    uint32_t word;
    if (words[words.size() - 1 - i].empty() ||
        !absl::SimpleHexAtoi(words[words.size() - 1 - i], &word)) {
      return std::nullopt;
    }
    for (int bit = 0; bit < 32; ++bit) {
      if ((word >> bit & 1) != 0) {
        cpus.push_back(static_cast<int>(i) * 32 + bit);
      }
    }
  }
  return cpus;
}

}  // namespace trainctl
