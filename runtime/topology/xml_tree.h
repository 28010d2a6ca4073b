// The XML that NCCL writes, from an untrusted file: elements and attributes, comments and the
// declaration skipped. Anything else (text, entities but the five of XML, DOCTYPE, CDATA) is
// refused. Pure.
#ifndef TRAINCTL_RUNTIME_TOPOLOGY_XML_TREE_H_
#define TRAINCTL_RUNTIME_TOPOLOGY_XML_TREE_H_

#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace trainctl {

inline constexpr size_t kLargestXml = size_t{1} << 20;
inline constexpr int kDeepestXml = 32;

struct XmlElement {
  std::string name;
  int line = 0;
  std::vector<std::pair<std::string, std::string>> attributes;
  std::vector<XmlElement> children;

  // Empty if there is no such attribute: NCCL leaves many out, and empties others.
  absl::string_view Attribute(absl::string_view key) const;
};

// INVALID_ARGUMENT "FILE:LINE: …".
absl::StatusOr<XmlElement> ParseXml(absl::string_view text, absl::string_view file);

}  // namespace trainctl

#endif  // TRAINCTL_RUNTIME_TOPOLOGY_XML_TREE_H_
