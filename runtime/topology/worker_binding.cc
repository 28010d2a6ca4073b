#include "runtime/topology/worker_binding.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"

namespace trainctl {
namespace {

constexpr char kVisible[] = "CUDA_VISIBLE_DEVICES=";

std::vector<std::string>::iterator FindName(std::vector<std::string>* environment,
                                            absl::string_view name_and_equals) {
  return std::find_if(environment->begin(), environment->end(), [&](const std::string& entry) {
    return absl::StartsWith(entry, name_and_equals);
  });
}

void SetEntry(std::string name_and_equals, absl::string_view value,
              std::vector<std::string>* environment) {
  const auto known = FindName(environment, name_and_equals);
  absl::StrAppend(&name_and_equals, value);
  if (known != environment->end()) {
    *known = std::move(name_and_equals);
  } else {
    environment->push_back(std::move(name_and_equals));
  }
}

}  // namespace

void AddDefaults(const std::vector<std::string>& defaults, std::vector<std::string>* environment) {
  for (const std::string& entry : defaults) {
    const std::string name = entry.substr(0, entry.find('=') + 1);
    if (!name.empty() && FindName(environment, name) == environment->end()) {
      environment->push_back(entry);
    }
  }
}

void BindCommon(const WorkerBinding& binding, std::vector<std::string>* common) {
  if (binding.workers.empty()) return;
  const std::string visible = absl::StrJoin(
      binding.workers, ",",
      [](std::string* out, const GpuWorker& worker) { absl::StrAppend(out, worker.uuid); });
  SetEntry(kVisible, visible, common);
  std::vector<std::string> settings;
  for (const auto& [name, value] : binding.settings) {
    settings.push_back(absl::StrCat(name, "=", value));
  }
  AddDefaults(settings, common);
}

void BindOwn(const WorkerBinding& binding, int local_rank, std::vector<std::string>* own) {
  const auto index = static_cast<size_t>(local_rank);
  if (local_rank < 0 || index >= binding.workers.size()) return;
  const bool alone = FindName(own, kVisible) != own->end();
  if (!alone && !binding.slices) return;
  SetEntry(kVisible, binding.workers[index].uuid, own);
  SetEntry("LOCAL_RANK=", "0", own);
}

}  // namespace trainctl
