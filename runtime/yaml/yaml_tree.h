// YAML from an untrusted file, as a small tree that knows its lines. Pure.
// Refused, because such a file needs none of them and they make small files expensive: aliases and
// anchors, deep nesting, explicit tags, duplicate keys, several documents, more than 1 MiB.
#ifndef TRAINCTL_RUNTIME_YAML_YAML_TREE_H_
#define TRAINCTL_RUNTIME_YAML_YAML_TREE_H_

#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace trainctl {

inline constexpr size_t kLargestYaml = size_t{1} << 20;
inline constexpr int kDeepestYaml = 32;
inline constexpr size_t kMostYamlKeys = 1000;  // in one mapping

struct YamlEntry;

struct YamlNode {
  enum class Kind { kNull, kScalar, kSequence, kMap };
  Kind kind = Kind::kNull;
  int line = 0;  // from 1
  std::string scalar;
  bool quoted = false;  // a quoted scalar is text, never a number or a truth value
  std::vector<YamlNode> items;
  std::vector<YamlEntry> entries;  // in the order of the file
};

struct YamlEntry {
  YamlNode key;  // a scalar
  YamlNode value;
};

// "a text", "a list", "a mapping" or "nothing", for messages.
const char* YamlKindName(YamlNode::Kind kind);

// INVALID_ARGUMENT "FILE:LINE: …" on anything that is refused. An empty file is kNull.
absl::StatusOr<YamlNode> ParseYaml(const std::string& text, absl::string_view file);

}  // namespace trainctl

#endif  // TRAINCTL_RUNTIME_YAML_YAML_TREE_H_
