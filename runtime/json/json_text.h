// JSON text, read and written in one place: every text from a file or the wire is read within the
// same limits, nothing written throws, and the library's parser and writer are compiled once.
#ifndef TRAINCTL_RUNTIME_JSON_JSON_TEXT_H_
#define TRAINCTL_RUNTIME_JSON_JSON_TEXT_H_

#include <nlohmann/json.hpp>
#include <string>

#include "absl/strings/string_view.h"

namespace trainctl {

// Nested deeper than this is refused: a value is read, written and destroyed by recursion.
inline constexpr int kMaxJsonDepth = 64;

// A discarded value (is_discarded, and no is_…() holds) if `text` is no JSON or nested too deep.
nlohmann::json ParseJson(absl::string_view text);
// The same, with the members of objects in the order of the text.
nlohmann::ordered_json ParseOrderedJson(absl::string_view text);

// On one line, or indented by so many spaces. What is not UTF-8 becomes U+FFFD.
std::string JsonText(const nlohmann::json& value, int indent = -1);
std::string JsonText(const nlohmann::ordered_json& value, int indent = -1);

}  // namespace trainctl

#endif  // TRAINCTL_RUNTIME_JSON_JSON_TEXT_H_
