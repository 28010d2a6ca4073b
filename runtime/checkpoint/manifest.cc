#include "runtime/checkpoint/manifest.h"

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "runtime/base/status.h"
#include "runtime/checkpoint/digest.h"
#include "runtime/json/json_text.h"

namespace trainctl {
namespace {

using nlohmann::json;

constexpr int64_t kMaxWorldSize = 99999;  // five digits in a shard's name

// nullopt if it is no JSON object, or nested deeper than printing it again can afford.
std::optional<json> ParseObject(absl::string_view text) {
  json value = ParseJson(text);
  if (!value.is_object()) return std::nullopt;
  return value;
}

absl::Status DamagedManifest(absl::string_view what) {
  return absl::DataLossError(absl::StrCat("manifest: ", what));
}

absl::StatusOr<int64_t> NumberOf(const json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_number_integer() || found->get<int64_t>() < 0) {
    return DamagedManifest(absl::StrCat("\"", key, "\" is missing or not a number ≥ 0"));
  }
  return found->get<int64_t>();
}

absl::StatusOr<std::string> TextOf(const json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_string()) {
    return DamagedManifest(absl::StrCat("\"", key, "\" is missing or not a string"));
  }
  return found->get<std::string>();
}

absl::StatusOr<ShardFile> ShardOf(const json& value, int rank, int world_size) {
  if (!value.is_object()) return DamagedManifest(absl::StrCat("shard ", rank, " is not an object"));
  ShardFile shard;
  ASSIGN_OR_RETURN(shard.file, TextOf(value, "file"));
  ASSIGN_OR_RETURN(const int64_t length, NumberOf(value, "length"));
  ASSIGN_OR_RETURN(shard.digest, TextOf(value, "digest"));
  shard.length = static_cast<uint64_t>(length);
  if (shard.file != ShardFileName(rank, world_size)) {
    return DamagedManifest(
        absl::StrCat("shard ", rank, " of ", world_size, " has the name ", shard.file));
  }
  return shard;
}

}  // namespace

absl::StatusOr<std::string> FormatManifest(const Manifest& manifest) {
  std::optional<json> state = ParseObject(manifest.state);
  if (!state.has_value()) {
    return absl::InvalidArgumentError("the training state is not a JSON object");
  }
  json shards = json::array();
  for (const ShardFile& shard : manifest.shards) {
    shards.push_back({{"file", shard.file}, {"length", shard.length}, {"digest", shard.digest}});
  }
  json document = {{"schema", kManifestSchema},         {"step", manifest.step.value},
                   {"term", manifest.term.value},       {"epoch", manifest.epoch.value},
                   {"world_size", manifest.world_size}, {"shards", std::move(shards)},
                   {"state", *std::move(state)}};
  document["digest"] = DigestOf(JsonText(document));
  return JsonText(document, 1) + "\n";
}

absl::StatusOr<Manifest> ParseManifest(absl::string_view text) {
  std::optional<json> parsed = ParseObject(text);
  if (!parsed.has_value()) return DamagedManifest("not a JSON object");
  json& document = *parsed;
  ASSIGN_OR_RETURN(const int64_t schema, NumberOf(document, "schema"));
  if (schema != kManifestSchema) {
    return DamagedManifest(
        absl::StrCat("schema ", schema, "; this program reads schema ", kManifestSchema));
  }
  ASSIGN_OR_RETURN(const std::string digest, TextOf(document, "digest"));
  document.erase("digest");
  const std::string found = DigestOf(JsonText(document));
  if (found != digest) {
    return DamagedManifest(absl::StrCat("its digest is ", found, ", it says ", digest));
  }
  Manifest manifest;
  ASSIGN_OR_RETURN(manifest.step.value, NumberOf(document, "step"));
  ASSIGN_OR_RETURN(manifest.term.value, NumberOf(document, "term"));
  ASSIGN_OR_RETURN(manifest.epoch.value, NumberOf(document, "epoch"));
  ASSIGN_OR_RETURN(const int64_t world_size, NumberOf(document, "world_size"));
  const auto shards = document.find("shards");
  if (world_size < 1 || world_size > kMaxWorldSize || shards == document.end() ||
      !shards->is_array() || shards->size() != static_cast<size_t>(world_size)) {
    return DamagedManifest(absl::StrCat("\"shards\" is not a list of ", world_size, " shards"));
  }
  manifest.world_size = static_cast<int>(world_size);
  for (int rank = 0; rank < manifest.world_size; ++rank) {
    ASSIGN_OR_RETURN(ShardFile shard, ShardOf((*shards)[rank], rank, manifest.world_size));
    manifest.shards.push_back(std::move(shard));
  }
  const auto state = document.find("state");
  if (state == document.end() || !state->is_object())
    return DamagedManifest("\"state\" is missing");
  manifest.state = JsonText(*state);
  return manifest;
}

std::string StepFolderName(Step step) { return absl::StrFormat("step-%09d", step.value); }

std::optional<Step> ParseStepFolderName(absl::string_view name) {
  int64_t value = 0;
  if (!absl::StartsWith(name, "step-") || !absl::SimpleAtoi(name.substr(5), &value) || value < 0 ||
      name != StepFolderName(Step(value))) {
    return std::nullopt;
  }
  return Step(value);
}

std::string HiddenFolderName(Step step, Epoch epoch) {
  return absl::StrFormat(".%s.epoch-%d", StepFolderName(step), epoch.value);
}

std::string DeletedFolderName(Step step) { return absl::StrCat(".deleted-", StepFolderName(step)); }

bool IsHiddenFolderName(absl::string_view name) {
  return absl::StartsWith(name, ".step-") || absl::StartsWith(name, ".deleted-step-");
}

std::string ShardFileName(int rank, int world_size) {
  return absl::StrFormat("shard-%05d-of-%05d.safetensors", rank, world_size);
}

}  // namespace trainctl
