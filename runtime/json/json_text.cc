#include "runtime/json/json_text.h"

namespace trainctl {
namespace {

template <typename Json>
Json Parse(absl::string_view text) {
  bool deep = false;
  const auto shallow = [&deep](int depth, typename Json::parse_event_t, Json&) {
    deep |= depth > kMaxJsonDepth;
    return !deep;
  };
  Json value = Json::parse(text.begin(), text.end(), shallow, /*allow_exceptions=*/false);
  return deep ? Json(Json::value_t::discarded) : value;
}

template <typename Json>
std::string Text(const Json& value, int indent) {
  return value.dump(indent, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace);
}

}  // namespace

nlohmann::json ParseJson(absl::string_view text) { return Parse<nlohmann::json>(text); }

nlohmann::ordered_json ParseOrderedJson(absl::string_view text) {
  return Parse<nlohmann::ordered_json>(text);
}

std::string JsonText(const nlohmann::json& value, int indent) { return Text(value, indent); }

std::string JsonText(const nlohmann::ordered_json& value, int indent) {
  return Text(value, indent);
}

}  // namespace trainctl
