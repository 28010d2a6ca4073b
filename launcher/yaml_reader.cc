#include "launcher/yaml_reader.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "launcher/flag_value.h"
#include "launcher/suggest.h"

namespace trainctl {
namespace {

std::string Found(const YamlNode& node) {
  return node.kind == YamlNode::Kind::kScalar ? absl::StrCat("\"", node.scalar.substr(0, 60), "\"")
                                              : YamlKindName(node.kind);
}

}  // namespace

void YamlProblem::Report(int line, absl::string_view message) {
  if (status_.ok()) {
    status_ = absl::InvalidArgumentError(absl::StrCat(file_, ":", line, ": ", message));
  }
}

YamlReader::YamlReader(const YamlNode& node, std::string where, YamlProblem* problem)
    : node_(&node), where_(std::move(where)), problem_(problem) {
  if (node.kind != YamlNode::Kind::kMap) {
    problem_->Report(node.line,
                     absl::StrCat(where_.empty() ? "the file" : where_,
                                  " must be a mapping of keys to values, found ", Found(node)));
  }
}

std::string YamlReader::Name(absl::string_view key) const {
  return where_.empty() ? std::string(key) : absl::StrCat(where_, ".", key);
}

const YamlNode* YamlReader::Find(const char* key) {
  known_.push_back(key);
  for (const auto& [name, value] : node_->entries) {
    if (name.scalar == key) {
      return &value;
    }
  }
  return nullptr;
}

const YamlNode* YamlReader::FindScalar(const char* key, absl::string_view expected) {
  const YamlNode* value = Find(key);
  if (value != nullptr && value->kind != YamlNode::Kind::kScalar) {
    problem_->Report(value->line,
                     absl::StrCat(Name(key), ": found ", Found(*value), ", expected ", expected));
    return nullptr;
  }
  return value;
}

std::optional<int64_t> YamlReader::Integer(const char* key, int64_t min, int64_t max) {
  const YamlNode* value = FindScalar(key, "a whole number");
  if (value == nullptr) {
    return std::nullopt;
  }
  absl::StatusOr<int64_t> number = ParseInteger(value->scalar, min, max);
  if (value->quoted || !number.ok()) {
    problem_->Report(
        value->line,
        absl::StrCat(Name(key), ": found ", value->quoted ? "the text " : "", Found(*value),
                     ", expected a whole number from ", min, " to ", max));
    return std::nullopt;
  }
  return *number;
}

std::optional<double> YamlReader::Number(const char* key, double min, double max) {
  const YamlNode* value = FindScalar(key, "a number");
  if (value == nullptr) {
    return std::nullopt;
  }
  absl::StatusOr<double> number = ParseNumber(value->scalar, min, max);
  if (value->quoted || !number.ok()) {
    problem_->Report(value->line,
                     absl::StrCat(Name(key), ": found ", value->quoted ? "the text " : "",
                                  Found(*value), ", expected a number from ", min, " to ", max));
    return std::nullopt;
  }
  return *number;
}

std::optional<std::string> YamlReader::Text(const char* key) {
  const YamlNode* value = FindScalar(key, "a text");
  if (value == nullptr) {
    return std::nullopt;
  }
  if (value->scalar.empty()) {
    problem_->Report(value->line, absl::StrCat(Name(key), " must not be empty"));
    return std::nullopt;
  }
  return value->scalar;
}

std::optional<std::string> YamlReader::Word(const char* key,
                                            const std::vector<std::string>& allowed) {
  const std::string expected = absl::StrCat("one of ", absl::StrJoin(allowed, ", "));
  const YamlNode* value = FindScalar(key, expected);
  if (value == nullptr) {
    return std::nullopt;
  }
  if (std::find(allowed.begin(), allowed.end(), value->scalar) == allowed.end()) {
    problem_->Report(value->line, absl::StrCat(Name(key), ": found ", Found(*value), ", expected ",
                                               expected, DidYouMean(value->scalar, allowed)));
    return std::nullopt;
  }
  return value->scalar;
}

std::optional<std::vector<int64_t>> YamlReader::Integers(const char* key, int64_t min,
                                                         int64_t max) {
  const YamlNode* value = Find(key);
  if (value == nullptr) {
    return std::nullopt;
  }
  const std::string expected = absl::StrCat("a list of whole numbers from ", min, " to ", max);
  std::vector<int64_t> numbers;
  for (const YamlNode& item : value->items) {
    absl::StatusOr<int64_t> number = ParseInteger(item.scalar, min, max);
    if (item.kind != YamlNode::Kind::kScalar || item.quoted || !number.ok()) {
      problem_->Report(item.line,
                       absl::StrCat(Name(key), ": found ", Found(item), ", expected ", expected));
      return std::nullopt;
    }
    numbers.push_back(*number);
  }
  if (value->kind != YamlNode::Kind::kSequence) {
    problem_->Report(value->line,
                     absl::StrCat(Name(key), ": found ", Found(*value), ", expected ", expected));
    return std::nullopt;
  }
  return numbers;
}

std::optional<std::vector<std::string>> YamlReader::Texts(const char* key) {
  const YamlNode* value = Find(key);
  if (value == nullptr) {
    return std::nullopt;
  }
  if (value->kind != YamlNode::Kind::kSequence) {
    problem_->Report(value->line, absl::StrCat(Name(key), ": found ", Found(*value),
                                               ", expected a list of texts"));
    return std::nullopt;
  }
  std::vector<std::string> texts;
  for (const YamlNode& item : value->items) {
    if (item.kind != YamlNode::Kind::kScalar) {
      problem_->Report(item.line, absl::StrCat(Name(key), ": found ", Found(item),
                                               ", expected a list of texts"));
      return std::nullopt;
    }
    texts.push_back(item.scalar);
  }
  return texts;
}

std::optional<YamlReader> YamlReader::Map(const char* key) {
  const YamlNode* value = Find(key);
  if (value == nullptr) {
    return std::nullopt;
  }
  return YamlReader(*value, Name(key), problem_);
}

std::vector<std::pair<std::string, std::string>> YamlReader::AllTexts() {
  std::vector<std::pair<std::string, std::string>> texts;
  for (const auto& [key, value] : node_->entries) {
    known_.push_back(key.scalar);
    if (value.kind != YamlNode::Kind::kScalar) {
      problem_->Report(value.line, absl::StrCat(Name(key.scalar), ": found ", Found(value),
                                                ", expected a text"));
      continue;
    }
    texts.emplace_back(key.scalar, value.scalar);
  }
  return texts;
}

void YamlReader::Require(const char* key, absl::string_view expected) {
  const bool present = std::any_of(node_->entries.begin(), node_->entries.end(),
                                   [&](const YamlEntry& entry) { return entry.key.scalar == key; });
  if (!present) {
    problem_->Report(node_->line, absl::StrCat(Name(key), " is missing; expected ", expected));
  }
}

void YamlReader::Problem(const char* key, absl::string_view message) {
  int line = node_->line;
  for (const auto& [name, value] : node_->entries) {
    if (name.scalar == key) {
      line = value.line;
    }
  }
  problem_->Report(line,
                   absl::StrCat(Name(key), absl::StartsWith(message, ":") ? "" : " ", message));
}

void YamlReader::RefuseUnknownKeys() {
  for (const auto& [key, value] : node_->entries) {
    if (std::find(known_.begin(), known_.end(), key.scalar) == known_.end()) {
      const std::string nearest = DidYouMean(key.scalar, known_);
      problem_->Report(
          key.line,
          absl::StrCat("unknown key \"", key.scalar.substr(0, 60), "\"",
                       where_.empty() ? "" : absl::StrCat(" in ", where_),
                       nearest.empty() ? absl::StrCat("; known are ", absl::StrJoin(known_, ", "))
                                       : nearest));
    }
  }
}

}  // namespace trainctl
