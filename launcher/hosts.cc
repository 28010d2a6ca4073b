#include "launcher/hosts.h"

#include <algorithm>
#include <cstdint>
#include <set>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "launcher/coordinator/spec.h"
#include "runtime/base/status.h"
#include "runtime/security/peer_name.h"

namespace trainctl {
namespace {

constexpr size_t kMaxDigits = 9;
constexpr size_t kMaxBrackets = 8;

struct Range {
  uint32_t first = 0;
  uint32_t last = 0;
  size_t width = 0;
};
// A bracket with the text before it.
struct Bracket {
  std::string before;
  std::vector<Range> ranges;
  size_t count = 0;
};
struct Item {
  std::vector<Bracket> groups;
  std::string after;
  int slots = 0;
  size_t count = 1;  // of the nodes it stands for
};

std::string Shown(absl::string_view text) {
  return absl::StrCat("\"", absl::CHexEscape(text.substr(0, 60)), text.size() > 60 ? "…" : "",
                      "\"");
}

bool IsDigit(char c) { return absl::ascii_isdigit(static_cast<unsigned char>(c)); }
bool IsSpace(char c) { return absl::ascii_isspace(static_cast<unsigned char>(c)); }

absl::Status Wrong(absl::string_view item, absl::string_view problem) {
  return absl::InvalidArgumentError(absl::StrCat("list of nodes: ", Shown(item), ": ", problem));
}

absl::StatusOr<uint32_t> ParseDigits(absl::string_view item, absl::string_view digits) {
  uint32_t value = 0;
  if (digits.empty() || !std::all_of(digits.begin(), digits.end(), IsDigit)) {
    return Wrong(item, absl::StrCat("found ", Shown(digits),
                                    " within brackets, expected a number or a range such as 1-4"));
  }
  if (digits.size() > kMaxDigits || !absl::SimpleAtoi(digits, &value)) {
    return Wrong(
        item, absl::StrCat("the number ", Shown(digits), " has more than ", kMaxDigits, " digits"));
  }
  return value;
}

absl::StatusOr<Range> ParseRange(absl::string_view item, absl::string_view text) {
  const size_t hyphen = text.find('-');
  const absl::string_view first = text.substr(0, hyphen);
  Range range;
  ASSIGN_OR_RETURN(range.first, ParseDigits(item, first));
  range.last = range.first;
  range.width = first.size();
  if (hyphen == absl::string_view::npos) return range;
  const absl::string_view last = text.substr(hyphen + 1);
  ASSIGN_OR_RETURN(range.last, ParseDigits(item, last));
  if (range.last < range.first) {
    return Wrong(item, absl::StrCat("the range ", text, " ends before it begins"));
  }
  if (last[0] == '0' && last.size() != first.size()) {
    return Wrong(item, absl::StrCat("the ends of the range ", text, " are padded differently"));
  }
  return range;
}

// `inside`: what stands between the brackets.
absl::StatusOr<Bracket> ParseGroup(absl::string_view item, absl::string_view before,
                                   absl::string_view inside) {
  if (inside.find('[') != absl::string_view::npos) {
    return Wrong(item, "a bracket stands within brackets");
  }
  Bracket group;
  group.before = std::string(before);
  for (const absl::string_view part : absl::StrSplit(inside, ',')) {
    ASSIGN_OR_RETURN(const Range range, ParseRange(item, absl::StripAsciiWhitespace(part)));
    group.count += range.last - range.first + 1;
    if (group.count > kMaxListedNodes) {
      return Wrong(item, absl::StrCat("it stands for more than ", kMaxListedNodes, " nodes"));
    }
    group.ranges.push_back(range);
  }
  return group;
}

absl::StatusOr<int> ParseSlots(absl::string_view item, absl::string_view text) {
  int slots = 0;
  if (!absl::SimpleAtoi(text, &slots) || slots < 1 || slots > kMaxWorkersPerNode) {
    return Wrong(item, absl::StrCat("found ", Shown(text), " after the colon, expected 1 to ",
                                    kMaxWorkersPerNode, " slots"));
  }
  return slots;
}

absl::StatusOr<Item> ParseItem(absl::string_view text) {
  Item item;
  absl::string_view rest = text;
  for (size_t open = rest.find('['); open != absl::string_view::npos; open = rest.find('[')) {
    const size_t close = rest.find(']', open);
    if (close == absl::string_view::npos) return Wrong(text, "a bracket is not closed");
    if (item.groups.size() == kMaxBrackets) {
      return Wrong(text, absl::StrCat("it has more than ", kMaxBrackets, " brackets"));
    }
    ASSIGN_OR_RETURN(Bracket group, ParseGroup(text, rest.substr(0, open),
                                               rest.substr(open + 1, close - open - 1)));
    item.count *= group.count;
    if (item.count > kMaxListedNodes) {
      return Wrong(text, absl::StrCat("it stands for more than ", kMaxListedNodes, " nodes"));
    }
    item.groups.push_back(std::move(group));
    rest.remove_prefix(close + 1);
  }
  if (const size_t colon = rest.find(':'); colon != absl::string_view::npos) {
    ASSIGN_OR_RETURN(item.slots, ParseSlots(text, rest.substr(colon + 1)));
    rest = rest.substr(0, colon);
  }
  item.after = std::string(rest);
  return item;
}

std::string Padded(uint32_t number, size_t width) {
  std::string digits = absl::StrCat(number);
  if (digits.size() < width) digits.insert(0, width - digits.size(), '0');
  return digits;
}

void Expand(const Item& item, size_t group, const std::string& prefix,
            std::vector<ListedNode>* nodes) {
  if (group == item.groups.size()) {
    nodes->push_back({prefix + item.after, item.slots});
    return;
  }
  for (const Range& range : item.groups[group].ranges) {
    for (uint32_t number = range.first; number <= range.last; ++number) {
      Expand(item, group + 1,
             absl::StrCat(prefix, item.groups[group].before, Padded(number, range.width)), nodes);
    }
  }
}

absl::Status Append(absl::string_view text, std::vector<ListedNode>* nodes) {
  ASSIGN_OR_RETURN(const Item item, ParseItem(text));
  if (nodes->size() + item.count > kMaxListedNodes) {
    return Wrong(text, absl::StrCat("with it there are more than ", kMaxListedNodes, " nodes"));
  }
  const size_t before = nodes->size();
  // A name that is wrong is wrong in all that the item stands for, or too long in the last ones.
  Expand(item, 0, "", nodes);
  for (size_t i : {before, nodes->size() - 1}) {
    if (!IsNodeName((*nodes)[i].name)) {
      return Wrong(text,
                   "a node's name has 1 to 253 of A-Z a-z 0-9 . _ - and begins with none of "
                   "the last three");
    }
  }
  return absl::OkStatus();
}

// The end of the item that begins at `from`.
size_t EndOfItem(absl::string_view text, size_t from) {
  bool within = false;
  size_t at = from;
  for (; at < text.size(); ++at) {
    if (text[at] == '[') within = true;
    if (text[at] == ']') within = false;
    if (!within && (text[at] == ',' || IsSpace(text[at]))) break;
  }
  return at;
}

absl::Status AppendList(absl::string_view text, std::vector<ListedNode>* nodes) {
  for (size_t at = 0; at < text.size();) {
    if (text[at] == ',' || IsSpace(text[at])) {
      ++at;
      continue;
    }
    const size_t end = EndOfItem(text, at);
    RETURN_IF_ERROR(Append(text.substr(at, end - at), nodes));
    at = end;
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<ListedNode>> Checked(std::vector<ListedNode> nodes) {
  if (nodes.empty()) return absl::InvalidArgumentError("list of nodes: it names none");
  std::set<absl::string_view> seen;
  for (const ListedNode& node : nodes) {
    if (!seen.insert(node.name).second) return Wrong(node.name, "the node is named twice");
  }
  return nodes;
}

absl::Status CheckSize(absl::string_view text) {
  if (text.size() <= kMaxListBytes) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("list of nodes: it has ", text.size(), " bytes; the limit is ", kMaxListBytes));
}

// A name around its last number: "gpu-07.site" is "gpu-", "07", ".site".
struct Numbered {
  absl::string_view before, digits, after;
};
Numbered SplitNumber(absl::string_view name) {
  size_t end = name.size();
  while (end > 0 && !IsDigit(name[end - 1])) --end;
  size_t begin = end;
  while (begin > 0 && end - begin < kMaxDigits && IsDigit(name[begin - 1])) --begin;
  return {name.substr(0, begin), name.substr(begin, end - begin), name.substr(end)};
}

bool Follows(const Numbered& a, const Numbered& b) {
  uint32_t number_a = 0;
  uint32_t number_b = 0;
  return a.before == b.before && a.after == b.after && absl::SimpleAtoi(a.digits, &number_a) &&
         absl::SimpleAtoi(b.digits, &number_b) && number_b == number_a + 1 &&
         Padded(number_b, a.digits.size()) == b.digits;
}

}  // namespace

absl::StatusOr<std::vector<ListedNode>> ParseHostList(absl::string_view text) {
  RETURN_IF_ERROR(CheckSize(text));
  std::vector<ListedNode> nodes;
  RETURN_IF_ERROR(AppendList(text, &nodes));
  return Checked(std::move(nodes));
}

absl::StatusOr<std::vector<ListedNode>> ParseHostFile(absl::string_view text) {
  RETURN_IF_ERROR(CheckSize(text));
  std::vector<ListedNode> nodes;
  int number = 0;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    ++number;
    line = line.substr(0, line.find('#'));
    if (const absl::Status status = AppendList(line, &nodes); !status.ok()) {
      return absl::InvalidArgumentError(absl::StrCat("line ", number, ": ", status.message()));
    }
  }
  return Checked(std::move(nodes));
}

absl::StatusOr<std::vector<int>> ParseRunLengths(absl::string_view text) {
  std::vector<int> values;
  for (absl::string_view part : absl::StrSplit(text, ',')) {
    const absl::string_view whole = part;
    int times = 1;
    if (const size_t open = part.find("(x"); open != absl::string_view::npos) {
      absl::string_view count = part.substr(open + 2);
      if (!absl::ConsumeSuffix(&count, ")") || !absl::SimpleAtoi(count, &times)) times = 0;
      part = part.substr(0, open);
    }
    int value = 0;
    if (!absl::SimpleAtoi(part, &value) || value < 0 || times < 1 ||
        values.size() + static_cast<size_t>(times) > kMaxListedNodes) {
      return absl::InvalidArgumentError(absl::StrCat(
          "found ", Shown(whole), ", expected a number, or one with its count as in 2(x3)"));
    }
    values.insert(values.end(), static_cast<size_t>(times), value);
  }
  return values;
}

std::string CompressHosts(const std::vector<std::string>& names) {
  std::string text;
  for (size_t i = 0; i < names.size();) {
    const Numbered first = SplitNumber(names[i]);
    size_t end = i + 1;
    while (end < names.size() && Follows(SplitNumber(names[end - 1]), SplitNumber(names[end]))) {
      ++end;
    }
    absl::StrAppend(&text, text.empty() ? "" : ",");
    if (end - i < 2) {
      absl::StrAppend(&text, names[i]);
    } else {
      absl::StrAppend(&text, first.before, "[", first.digits, "-",
                      SplitNumber(names[end - 1]).digits, "]", first.after);
    }
    i = end;
  }
  return text;
}

}  // namespace trainctl
