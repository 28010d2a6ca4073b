#include "launcher/coordinator/error_json.h"

#include <nlohmann/json.hpp>

namespace trainctl {

std::string ErrorMessage(absl::string_view error_json) {
  const auto json = nlohmann::json::parse(error_json.begin(), error_json.end(), nullptr, false);
  if (!json.is_object() || !json.contains("message")) return "";
  const nlohmann::json* message = &json["message"];
  if (message->is_object() && message->contains("message")) message = &(*message)["message"];
  if (!message->is_string()) return "";
  const auto& text = message->get_ref<const std::string&>();
  return text.substr(0, text.find('\n'));
}

}  // namespace trainctl
