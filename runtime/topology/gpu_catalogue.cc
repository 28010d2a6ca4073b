#include "runtime/topology/gpu_catalogue.h"

#include <map>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "runtime/base/check.h"
#include "runtime/base/status.h"
#include "runtime/yaml/yaml_tree.h"

namespace trainctl {

extern const char* const kGpuCatalogueText;  // made from gpus.yaml by the build

namespace {

constexpr const char* kFile = "gpus.yaml";

absl::StatusOr<GpuModel> ReadModel(const YamlNode& node) {
  std::map<std::string, const YamlNode*> values;
  for (const YamlEntry& entry : node.entries) {
    values[entry.key.scalar] = &entry.value;
  }
  const auto wrong = [&](const char* key) {
    return absl::InvalidArgumentError(
        absl::StrCat(kFile, ":", node.line, ": ", key, " is missing or wrong"));
  };
  GpuModel model;
  for (const auto& [key, text] :
       {std::make_pair("name", &model.name), std::make_pair("pci", &model.device_id),
        std::make_pair("interconnect", &model.interconnect),
        std::make_pair("source", &model.source)}) {
    if (values.count(key) == 0 || values[key]->scalar.empty()) {
      return wrong(key);
    }
    *text = values[key]->scalar;
  }
  for (const auto& [key, number] :
       {std::make_pair("fp32", &model.fp32), std::make_pair("memory_gb", &model.memory_gb),
        std::make_pair("bandwidth", &model.bandwidth),
        std::make_pair("interconnect_bandwidth", &model.interconnect_bandwidth),
        std::make_pair("watts", &model.watts)}) {
    if (values.count(key) == 0 || !absl::SimpleAtod(values[key]->scalar, number) ||
        !(*number > 0)) {
      return wrong(key);
    }
  }
  for (const auto& [key, number] :
       {std::make_pair("tf32", &model.tf32), std::make_pair("bf16", &model.bf16),
        std::make_pair("fp8", &model.fp8)}) {
    if (values.count(key) == 0) {
      return wrong(key);  // none is written as null
    }
    if (values[key]->kind != YamlNode::Kind::kNull &&
        !absl::SimpleAtod(values[key]->scalar, &number->emplace())) {
      return wrong(key);
    }
  }
  return model;
}

}  // namespace

absl::StatusOr<std::vector<GpuModel>> ParseGpuCatalogue(const std::string& text) {
  ASSIGN_OR_RETURN(const YamlNode root, ParseYaml(text, kFile));
  std::vector<GpuModel> models;
  for (const YamlEntry& entry : root.entries) {
    for (const YamlNode& item : entry.value.items) {
      ASSIGN_OR_RETURN(GpuModel model, ReadModel(item));
      models.push_back(std::move(model));
    }
  }
  return models;
}

const std::vector<GpuModel>& GpuCatalogue() {
  static const auto* models = [] {
    absl::StatusOr<std::vector<GpuModel>> read = ParseGpuCatalogue(kGpuCatalogueText);
    CHECK(read.ok());  // it was built in, and a test reads it
    return new std::vector<GpuModel>(*std::move(read));
  }();
  return *models;
}

const GpuModel* FindGpuModel(const Gpu& gpu) {
  const absl::string_view name = absl::StripPrefix(gpu.name, "NVIDIA ");
  for (const GpuModel& model : GpuCatalogue()) {
    if (name.empty() ? model.device_id == gpu.device_id : model.name == name) {
      return &model;
    }
  }
  return nullptr;
}

std::string ModelName(const Gpu& gpu) {
  if (!gpu.name.empty()) {
    return std::string(absl::StripPrefix(gpu.name, "NVIDIA "));
  }
  const GpuModel* model = FindGpuModel(gpu);
  return model != nullptr ? model->name : gpu.device_id.empty() ? "GPU" : gpu.device_id;
}

}  // namespace trainctl
