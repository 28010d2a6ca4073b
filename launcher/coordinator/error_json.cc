#include "launcher/coordinator/error_json.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "runtime/json/json_text.h"

namespace trainctl {

std::string ErrorMessage(absl::string_view error_json) {
  const auto json = ParseJson(error_json);
  if (!json.is_object() || !json.contains("message")) return "";
  const nlohmann::json* message = &json["message"];
  if (message->is_object() && message->contains("message")) message = &(*message)["message"];
  if (!message->is_string()) return "";
  const auto& text = message->get_ref<const std::string&>();
  return text.substr(0, text.find('\n'));
}

ErrorCause CauseOf(absl::string_view error_json) {
  ErrorCause cause;
  const auto json = ParseJson(error_json);
  const auto member = [](const nlohmann::json& object, const char* name) {
    const auto found = object.is_object() ? object.find(name) : object.end();
    return found == object.end() ? nlohmann::json() : *found;
  };
  const nlohmann::json extra = member(member(json, "message"), "extraInfo");
  const nlohmann::json failure_class = member(extra, "class");
  if (failure_class.is_string()) cause.failure_class = failure_class.get<std::string>();
  const nlohmann::json rank = member(extra, "rank");
  if (rank.is_number_integer()) cause.rank = rank.get<int>();
  return cause;
}

bool IsErrorLine(absl::string_view line) {
  const absl::string_view type = line.substr(0, line.find(':'));
  const bool word = !type.empty() && std::all_of(type.begin(), type.end(), [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '.';
  });
  return word && (absl::EndsWith(type, "Error") || absl::EndsWith(type, "Exception"));
}

}  // namespace trainctl
