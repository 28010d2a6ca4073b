#include "launcher/transport.h"

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "runtime/topology/topology_text.h"

namespace trainctl {

void Transports::Remember(const std::string& node, const std::string& devices) {
  if (devices.empty()) return;
  absl::StatusOr<Topology> topology = ParseTopology(devices, node);
  if (!topology.ok()) return;
  topology->node = node;  // its name in the job
  nodes_[node] = *std::move(topology);
}

const TransportPlan* Transports::PlanFor(Epoch epoch, const std::vector<NodeShare>& shares) {
  if (epoch == epoch_) return plan_.has_value() ? &*plan_ : nullptr;
  epoch_ = epoch;
  plan_.reset();
  if (shares.size() < 2) return nullptr;
  PlanRequest request;
  for (const NodeShare& share : shares) {
    const auto known = nodes_.find(share.node);
    if (known == nodes_.end()) return nullptr;
    request.nodes.push_back(known->second);
  }
  for (const std::string& entry : spec_.env) {
    const size_t equals = entry.find('=');
    if (absl::StartsWith(entry, "NCCL_") && equals != std::string::npos) {
      request.environment[entry.substr(0, equals)] = entry.substr(equals + 1);
    }
  }
  plan_ = PlanTransport(request);
  return &*plan_;
}

std::vector<std::string> Transports::Settings() const {
  std::vector<std::string> settings;
  if (!plan_.has_value()) return settings;
  for (const NcclSetting& setting : plan_->settings) {
    if (setting.who == NcclSetting::Who::kSet) {
      settings.push_back(absl::StrCat(setting.name, "=", setting.value));
    }
  }
  return settings;
}

std::vector<std::string> Transports::TakeNews() {
  std::vector<std::string> news;
  if (!plan_.has_value()) return news;
  for (const std::string& problem : plan_->problems) {
    if (told_.insert(problem).second) news.push_back(problem);
  }
  return news;
}

}  // namespace trainctl
