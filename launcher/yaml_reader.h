// Reads one mapping of a job file field by field and finds what is wrong with it: wrong types,
// values out of range, unknown keys. Every message is "FILE:LINE: …". Pure.
#ifndef TRAINCTL_LAUNCHER_YAML_READER_H_
#define TRAINCTL_LAUNCHER_YAML_READER_H_

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "runtime/yaml/yaml_tree.h"

namespace trainctl {

// The first problem of a file; later ones are dropped.
class YamlProblem {
 public:
  explicit YamlProblem(std::string file) : file_(std::move(file)) {}
  void Report(int line, absl::string_view message);
  const absl::Status& status() const { return status_; }

 private:
  std::string file_;
  absl::Status status_;
};

// Each getter makes its key known and returns nothing if the key is absent or its value wrong (then
// the problem is reported). REQUIRES: node and problem outlive the reader.
class YamlReader {
 public:
  // `where` names the mapping in messages: "train.model"; empty for the whole file.
  YamlReader(const YamlNode& node, std::string where, YamlProblem* problem);

  std::optional<int64_t> Integer(const char* key, int64_t min, int64_t max);
  std::optional<double> Number(const char* key, double min, double max);
  std::optional<std::string> Text(const char* key);
  std::optional<std::string> Word(const char* key, const std::vector<std::string>& allowed);
  std::optional<std::vector<int64_t>> Integers(const char* key, int64_t min, int64_t max);
  std::optional<std::vector<std::string>> Texts(const char* key);
  std::optional<YamlReader> Map(const char* key);
  // Keys of this mapping are the user's own, such as names of variables.
  std::vector<std::pair<std::string, std::string>> AllTexts();

  // Reports that `key` must be given, if it is not. `expected` says what.
  void Require(const char* key, absl::string_view expected);
  // Reports "KEY MESSAGE" at the line of `key`, or of the mapping if it is absent.
  void Problem(const char* key, absl::string_view message);
  // After all getters: reports a key that none of them asked for.
  void RefuseUnknownKeys();

 private:
  const YamlNode* Find(const char* key);
  const YamlNode* FindScalar(const char* key, absl::string_view expected);
  std::string Name(absl::string_view key) const;

  const YamlNode* node_;
  std::string where_;
  YamlProblem* problem_;
  std::vector<std::string> known_;
};

}  // namespace trainctl

#endif  // TRAINCTL_LAUNCHER_YAML_READER_H_
