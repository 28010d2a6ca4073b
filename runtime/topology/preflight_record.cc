#include "runtime/topology/preflight_record.h"

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "runtime/base/file.h"
#include "runtime/base/places.h"
#include "runtime/base/status.h"
#include "runtime/json/json_text.h"

namespace trainctl {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kMostBytes = size_t{1} << 20;

std::string RecordPath() { return JoinPath(StateFolder(), "preflight.json"); }

// What the record is of: this machine since it was started, with this driver and these GPUs.
Json Subject(const Topology& topology) {
  Json subject;
  const std::string boot = ReadFile("/proc/sys/kernel/random/boot_id", kMostBytes).value_or("");
  subject["boot"] = std::string(absl::StripAsciiWhitespace(boot));
  subject["driver"] = topology.driver;
  subject["gpus"] = Json::array();
  for (const Gpu& gpu : topology.gpus) subject["gpus"].push_back(gpu.uuid);
  return subject;
}

}  // namespace

absl::Status RecordPreflight(const Topology& topology) {
  Json record = {{"schema", 1}, {"subject", Subject(topology)}, {"bad_peer_access", Json::array()}};
  for (const std::string& seen : topology.bad_peer_access) {
    record["bad_peer_access"].push_back(seen);
  }
  RETURN_IF_ERROR(MakeFolders(StateFolder(), 0700));
  return ReplaceFile(RecordPath(), absl::StrCat(JsonText(record, 1), "\n"));
}

std::vector<std::string> RecordedPreflight(const Topology& topology) {
  std::vector<std::string> bad;
  const absl::StatusOr<std::string> text = ReadFile(RecordPath(), kMostBytes);
  const Json record = ParseOrderedJson(text.value_or(""));
  if (!record.is_object() || !record.contains("subject") ||
      record["subject"] != Subject(topology) || !record.contains("bad_peer_access")) {
    return bad;
  }
  for (const Json& what : record["bad_peer_access"]) {
    if (what.is_string()) bad.push_back(what.get<std::string>());
  }
  return bad;
}

}  // namespace trainctl
