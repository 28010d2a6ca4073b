#include "runtime/topology/xml_tree.h"

#include <algorithm>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "runtime/base/status.h"

namespace trainctl {
namespace {

bool IsNameCharacter(char c) {
  return absl::ascii_isalnum(c) || c == '_' || c == '-' || c == '.' || c == ':';
}

class Parser {
 public:
  Parser(absl::string_view text, absl::string_view file) : text_(text), rest_(text), file_(file) {}

  absl::StatusOr<XmlElement> Document() {
    RETURN_IF_ERROR(SkipBetween());
    XmlElement root;
    RETURN_IF_ERROR(Element(1, &root));
    RETURN_IF_ERROR(SkipBetween());
    if (!rest_.empty()) {
      return Wrong("something follows the end of the first element");
    }
    return root;
  }

 private:
  // Lines are counted once, as far as they were asked for.
  int Line() {
    const size_t here = text_.size() - rest_.size();
    const absl::string_view passed = text_.substr(counted_, here - counted_);
    line_ += static_cast<int>(std::count(passed.begin(), passed.end(), '\n'));
    counted_ = here;
    return line_;
  }
  absl::Status Wrong(absl::string_view what) {
    return absl::InvalidArgumentError(absl::StrCat(file_, ":", Line(), ": ", what));
  }
  void SkipSpace() { rest_ = absl::StripLeadingAsciiWhitespace(rest_); }

  // Space, comments and the declaration.
  absl::Status SkipBetween() {
    for (;;) {
      SkipSpace();
      const bool comment = absl::ConsumePrefix(&rest_, "<!--");
      if (!comment && !absl::ConsumePrefix(&rest_, "<?")) {
        return absl::OkStatus();
      }
      const absl::string_view end = comment ? "-->" : "?>";
      const size_t at = rest_.find(end);
      if (at == absl::string_view::npos) {
        return Wrong(absl::StrCat("no ", end, " follows"));
      }
      rest_.remove_prefix(at + end.size());
    }
  }

  absl::StatusOr<std::string> Name() {
    const size_t size = static_cast<size_t>(
        std::find_if_not(rest_.begin(), rest_.end(), IsNameCharacter) - rest_.begin());
    if (size == 0 || size > 64) {
      return Wrong("expected a name");
    }
    const std::string name(rest_.substr(0, size));
    rest_.remove_prefix(size);
    return name;
  }

  absl::Status Attribute(XmlElement* out) {
    ASSIGN_OR_RETURN(std::string key, Name());
    SkipSpace();
    if (!absl::ConsumePrefix(&rest_, "=")) {
      return Wrong(absl::StrCat("expected = after ", key));
    }
    SkipSpace();
    const char quote = rest_.empty() ? '\0' : rest_.front();
    const size_t end = rest_.find(quote, 1);
    if ((quote != '"' && quote != '\'') || end == absl::string_view::npos) {
      return Wrong(absl::StrCat("the value of ", key, " is not in quotes"));
    }
    const absl::string_view value = rest_.substr(1, end - 1);
    if (value.find('<') != absl::string_view::npos) {
      return Wrong(absl::StrCat("the value of ", key, " holds a <"));
    }
    if (!out->Attribute(key).empty()) {
      return Wrong(absl::StrCat(key, " is given twice"));
    }
    rest_.remove_prefix(end + 1);
    out->attributes.emplace_back(
        std::move(key),
        absl::StrReplaceAll(
            value,
            {{"&lt;", "<"}, {"&gt;", ">"}, {"&quot;", "\""}, {"&apos;", "'"}, {"&amp;", "&"}}));
    return absl::OkStatus();
  }

  absl::Status Element(int depth, XmlElement* out) {
    if (depth > kDeepestXml) {
      return Wrong(absl::StrCat("nested more than ", kDeepestXml, " levels deep"));
    }
    out->line = Line();
    if (!absl::ConsumePrefix(&rest_, "<")) {
      return Wrong("expected an element");
    }
    ASSIGN_OR_RETURN(out->name, Name());
    for (;;) {
      SkipSpace();
      if (absl::ConsumePrefix(&rest_, "/>")) {
        return absl::OkStatus();
      }
      if (absl::ConsumePrefix(&rest_, ">")) {
        return Children(depth, out);
      }
      RETURN_IF_ERROR(Attribute(out));
    }
  }

  absl::Status Children(int depth, XmlElement* out) {
    for (;;) {
      RETURN_IF_ERROR(SkipBetween());
      if (absl::ConsumePrefix(&rest_, "</")) {
        ASSIGN_OR_RETURN(const std::string name, Name());
        SkipSpace();
        if (name != out->name || !absl::ConsumePrefix(&rest_, ">")) {
          return Wrong(absl::StrCat("expected </", out->name, ">"));
        }
        return absl::OkStatus();
      }
      RETURN_IF_ERROR(Element(depth + 1, &out->children.emplace_back()));
    }
  }

  absl::string_view text_, rest_, file_;
  size_t counted_ = 0;
  int line_ = 1;
};

}  // namespace

absl::string_view XmlElement::Attribute(absl::string_view key) const {
  for (const auto& [name, value] : attributes) {
    if (name == key) {
      return value;
    }
  }
  return "";
}

absl::StatusOr<XmlElement> ParseXml(absl::string_view text, absl::string_view file) {
  if (text.size() > kLargestXml) {
    return absl::InvalidArgumentError(absl::StrCat(file, ": larger than ", kLargestXml, " bytes"));
  }
  return Parser(text, file).Document();
}

}  // namespace trainctl
