// Lists of nodes as people and schedulers write them. Pure.
//
//   list  := item { (',' | white space) item }     commas within brackets do not separate
//   item  := { text | '[' range { ',' range } ']' } [ ':' SLOTS ]
//   range := NUMBER | NUMBER '-' NUMBER            the width of the first number is kept: 08-10
//
// Several brackets multiply, the last one fastest: n[1-2][3-4] is n13 n14 n23 n24.
#ifndef TRAINCTL_LAUNCHER_HOSTS_H_
#define TRAINCTL_LAUNCHER_HOSTS_H_

#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace trainctl {

struct ListedNode {
  std::string name;
  int slots = 0;  // workers it can take; 0: not said
  friend bool operator==(const ListedNode&, const ListedNode&) = default;
};

inline constexpr size_t kMaxListedNodes = 65536;
inline constexpr size_t kMaxListBytes = size_t{1} << 20;

// In the order written. INVALID_ARGUMENT says what is wrong and where; how many nodes a list stands
// for is found out before any is made, so that no list costs more than its own length.
absl::StatusOr<std::vector<ListedNode>> ParseHostList(absl::string_view text);

// The same for a file: one or more items on a line, '#' begins a comment. The message names the
// line.
absl::StatusOr<std::vector<ListedNode>> ParseHostFile(absl::string_view text);

// Run-length text as Slurm writes it: "2(x3),1" is {2,2,2,1}. At most kMaxListedNodes.
absl::StatusOr<std::vector<int>> ParseRunLengths(absl::string_view text);

// The shortest list of `names` in their order: "n[1-3],n7".
std::string CompressHosts(const std::vector<std::string>& names);

}  // namespace trainctl

#endif  // TRAINCTL_LAUNCHER_HOSTS_H_
