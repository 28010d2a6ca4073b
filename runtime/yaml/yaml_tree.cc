#include "runtime/yaml/yaml_tree.h"

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/yaml.h>

#include <exception>
#include <sstream>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace trainctl {
namespace {

int LineOf(const YAML::Mark& mark) { return mark.line + 1; }

// Builds the tree from the parser's events. After the first refusal it ignores the rest: the size
// limit bounds what is still parsed.
class TreeBuilder : public YAML::EventHandler {
 public:
  const std::string& refusal() const { return refusal_; }
  int refusal_line() const { return refusal_line_; }
  YamlNode TakeRoot() { return std::move(root_); }

  void OnDocumentStart(const YAML::Mark&) override {}
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    YamlNode node;
    node.line = LineOf(mark);
    Add(mark, anchor, "", std::move(node));
  }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t) override {
    Refuse(mark, "aliases (*name) are not allowed here; write the value out");
  }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    YamlNode node;
    node.kind = YamlNode::Kind::kScalar;
    node.line = LineOf(mark);
    node.scalar = value;
    node.quoted = tag == "!";
    Add(mark, anchor, tag, std::move(node));
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    Open(mark, tag, anchor, YamlNode::Kind::kSequence);
  }
  void OnSequenceEnd() override { Close(); }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    Open(mark, tag, anchor, YamlNode::Kind::kMap);
  }
  void OnMapEnd() override { Close(); }

 private:
  struct Level {
    YamlNode node;
    std::vector<YamlNode> key;  // a key that waits for its value
  };

  void Refuse(const YAML::Mark& mark, std::string why) {
    if (refusal_.empty()) {
      refusal_ = std::move(why);
      refusal_line_ = LineOf(mark);
      open_.clear();
    }
  }
  bool Refused(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor) {
    if (anchor != YAML::NullAnchor) {
      Refuse(mark, "anchors (&name) are not allowed here; write the value out");
    } else if (!tag.empty() && tag != "?" && tag != "!") {
      Refuse(mark, absl::StrCat("tags (", tag.substr(0, 60), ") are not allowed here"));
    }
    return !refusal_.empty();
  }
  void Open(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
            YamlNode::Kind kind) {
    if (Refused(mark, tag, anchor)) {
      return;
    }
    if (open_.size() >= kDeepestYaml) {
      Refuse(mark, absl::StrCat("nested more than ", kDeepestYaml, " levels deep"));
      return;
    }
    Level level;
    level.node.kind = kind;
    level.node.line = LineOf(mark);
    open_.push_back(std::move(level));
  }
  void Close() {
    if (open_.empty()) {
      return;  // after a refusal
    }
    YamlNode node = std::move(open_.back().node);
    open_.pop_back();
    Attach(std::move(node));
  }
  void Add(const YAML::Mark& mark, YAML::anchor_t anchor, const std::string& tag, YamlNode node) {
    if (!Refused(mark, tag, anchor)) {
      Attach(std::move(node));
    }
  }
  void Attach(YamlNode node) {
    if (open_.empty()) {
      root_ = std::move(node);
      return;
    }
    Level& level = open_.back();
    if (level.node.kind == YamlNode::Kind::kSequence) {
      level.node.items.push_back(std::move(node));
    } else if (level.key.empty()) {
      AttachKey(&level, std::move(node));
    } else {
      level.node.entries.push_back(YamlEntry{std::move(level.key.back()), std::move(node)});
      level.key.clear();
    }
  }
  void AttachKey(Level* level, YamlNode key) {
    YAML::Mark mark;
    mark.line = key.line - 1;
    if (key.kind != YamlNode::Kind::kScalar) {
      Refuse(mark, absl::StrCat("a key must be a text, found ", YamlKindName(key.kind)));
      return;
    }
    if (level->node.entries.size() >= kMostYamlKeys) {
      Refuse(mark, absl::StrCat("more than ", kMostYamlKeys, " keys in one mapping"));
      return;
    }
    for (const auto& [known, value] : level->node.entries) {
      if (known.scalar == key.scalar) {
        Refuse(mark, absl::StrCat("key \"", key.scalar.substr(0, 60),
                                  "\" is given twice (first in line ", known.line, ")"));
        return;
      }
    }
    level->key.push_back(std::move(key));
  }

  YamlNode root_;
  std::vector<Level> open_;
  std::string refusal_;
  int refusal_line_ = 0;
};

}  // namespace

const char* YamlKindName(YamlNode::Kind kind) {
  switch (kind) {
    case YamlNode::Kind::kNull:
      return "nothing";
    case YamlNode::Kind::kScalar:
      return "a text";
    case YamlNode::Kind::kSequence:
      return "a list";
    case YamlNode::Kind::kMap:
      return "a mapping";
  }
  return "nothing";
}

absl::StatusOr<YamlNode> ParseYaml(const std::string& text, absl::string_view file) {
  if (text.size() > kLargestYaml) {
    return absl::InvalidArgumentError(absl::StrCat(file, ": larger than ", kLargestYaml, " bytes"));
  }
  if (text.find('\0') != std::string::npos) {
    return absl::InvalidArgumentError(
        absl::StrCat(file, ": not a text file (it holds a zero byte)"));
  }
  TreeBuilder builder;
  int line = 0;
  std::string problem;
  try {
    std::istringstream stream(text);
    YAML::Parser parser(stream);
    parser.HandleNextDocument(builder);
    TreeBuilder second;
    if (builder.refusal().empty() && parser.HandleNextDocument(second)) {
      problem = "holds more than one document";
    }
  } catch (const YAML::Exception& error) {
    line = LineOf(error.mark);
    problem = absl::StrCat("this is no valid YAML: ", error.msg);
  } catch (const std::exception& error) {
    problem = error.what();
  }
  if (!builder.refusal().empty()) {
    line = builder.refusal_line();
    problem = builder.refusal();
  }
  if (!problem.empty()) {
    return absl::InvalidArgumentError(line > 0 ? absl::StrCat(file, ":", line, ": ", problem)
                                               : absl::StrCat(file, ": ", problem));
  }
  return builder.TakeRoot();
}

}  // namespace trainctl
