#include "runtime/topology/transport_plan.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "runtime/base/check.h"
#include "runtime/topology/plan_parts.h"

namespace trainctl {
namespace {

const char* WordOf(NcclSetting::Who who) {
  switch (who) {
    case NcclSetting::Who::kSet:
      return "set";
    case NcclSetting::Who::kYours:
      return "yours";
    case NcclSetting::Who::kLeftAlone:
      break;
  }
  return "left alone";
}

std::string ChoiceLine(const char* what, const TransportChoice& choice) {
  std::string line = absl::StrFormat("%-15s %s", what, WordOf(choice.transport));
  if (choice.gigabytes_per_second > 0) {
    absl::StrAppendFormat(&line, ", about %.0f GB/s", choice.gigabytes_per_second);
  }
  return absl::StrCat(line, ": ", choice.reason, "\n");
}

std::string NodeLines(const NodePlan& node) {
  std::string out = absl::StrCat("workers of ", node.node.empty() ? "this node" : node.node, "\n");
  for (size_t i = 0; i < node.ranks.size(); ++i) {
    const LocalRank& rank = node.ranks[i];
    absl::StrAppendFormat(&out, "  local rank %-3d %-14s", static_cast<int>(i), rank.device);
    if (!rank.nic.empty()) {
      absl::StrAppendFormat(&out, " %-16s",
                            absl::StrCat(rank.nic, " (", WordOf(rank.nic_path), ")"));
    }
    absl::StrAppend(&out,
                    rank.cpus.empty()
                        ? " any CPU"
                        : absl::StrCat(" CPUs ", rank.cpus, " of NUMA node ", rank.numa),
                    "\n");
  }
  absl::StrAppend(&out, node.ranks.empty() ? "  none on a GPU\n" : "");
  if (!node.ranks.empty()) {
    absl::StrAppend(&out, "  order: ", node.order_reason, "\n");
    absl::StrAppend(&out, node.nic_reason.empty() ? "" : "  ports: ", node.nic_reason,
                    node.nic_reason.empty() ? "" : "\n");
    absl::StrAppend(&out, "  bound: ", node.binding_reason, "\n");
  }
  return out;
}

TransportChoice Slower(const TransportChoice& a, const TransportChoice& b) {
  if (a.transport == Transport::kNone || b.transport == Transport::kNone) {
    return a.transport == Transport::kNone ? b : a;
  }
  if (a.transport != b.transport) {
    return a.transport < b.transport ? a : b;
  }
  return b.gigabytes_per_second < a.gigabytes_per_second ? b : a;
}

}  // namespace

const char* WordOf(Transport transport) {
  switch (transport) {
    case Transport::kNone:
      return "none";
    case Transport::kCpu:
      return "CPU";
    case Transport::kSharedMemory:
      return "shared memory";
    case Transport::kPcie:
      return "PCIe";
    case Transport::kNvlink:
      return "NVLink";
    case Transport::kNvSwitch:
      return "NVSwitch";
    case Transport::kTcp:
      return "TCP";
    case Transport::kRoce:
      return "RoCE";
    case Transport::kEfa:
      return "EFA";
    case Transport::kInfiniBand:
      return "InfiniBand";
  }
  return "none";
}

TransportPlan PlanTransport(const PlanRequest& request) {
  CHECK(!request.nodes.empty());
  TransportPlan plan;
  const bool several = request.several_nodes || request.nodes.size() > 1;
  if (several) {
    plan.between = ChooseBetween(request.nodes);
  } else {
    plan.between.reason = "one node";
  }
  for (size_t i = 0; i < request.nodes.size(); ++i) {
    std::string reason;
    const std::vector<Unit> ring = RingOrder(request.nodes[i], &reason);
    const TransportChoice within = ChooseWithin(request.nodes[i], ring);
    plan.within = i == 0 ? within : Slower(plan.within, within);
    plan.nodes.push_back(PlanNode(request.nodes[i], ring, reason, several));
  }
  plan.settings = ChooseSettings(request, plan.within, plan.between);
  // Of a node alone it is not known whether a job will leave it.
  plan.gradients = PlanGradients(request, plan.within,
                                 request.nodes.size() > 1 ? plan.between : TransportChoice());
  plan.problems = FindProblems(request, plan.between);
  return plan;
}

std::string ExplainPlan(const TransportPlan& plan) {
  std::string out = ChoiceLine("within a node", plan.within);
  absl::StrAppend(&out, ChoiceLine("between nodes", plan.between));
  for (const NodePlan& node : plan.nodes) {
    absl::StrAppend(&out, NodeLines(node));
  }
  absl::StrAppend(&out, plan.settings.empty() ? "" : "settings of NCCL\n");
  for (const NcclSetting& setting : plan.settings) {
    absl::StrAppendFormat(
        &out, "  %-10s %s, because %s\n", WordOf(setting.who),
        setting.value.empty() ? setting.name : absl::StrCat(setting.name, "=", setting.value),
        setting.reason);
  }
  absl::StrAppend(&out, "gradients       ", plan.gradients.precision, ": ",
                  plan.gradients.precision_reason, "\nbuckets         ");
  if (plan.gradients.bucket_bytes > 0) {
    absl::StrAppend(&out, "at most ", plan.gradients.bucket_bytes >> 20, " MiB: ");
  }
  absl::StrAppend(&out, plan.gradients.bucket_reason, "\n");
  absl::StrAppend(&out, plan.problems.empty() ? "" : "problems\n");
  for (const std::string& problem : plan.problems) {
    absl::StrAppend(&out, "  - ", problem, "\n");
  }
  return out;
}

nlohmann::ordered_json PlanDocument(const TransportPlan& plan) {
  using Json = nlohmann::ordered_json;
  const auto choice = [](const TransportChoice& made) {
    Json out;
    out["transport"] = WordOf(made.transport);
    if (made.gigabytes_per_second > 0) {
      out["gigabytes_per_second"] = made.gigabytes_per_second;
    }
    out["reason"] = made.reason;
    return out;
  };
  Json out;
  out["transport"] = choice(plan.within);
  out["between_nodes"] = choice(plan.between);
  for (const char* key : {"nodes", "settings", "problems"}) {
    out[key] = Json::array();
  }
  for (const NodePlan& node : plan.nodes) {
    Json item;
    item["node"] = node.node;
    item["ranks"] = Json::array();
    for (const LocalRank& rank : node.ranks) {
      item["ranks"].push_back({{"device", rank.device},
                               {"uuid", rank.uuid},
                               {"nic", rank.nic},
                               {"nic_path", WordOf(rank.nic_path)},
                               {"numa", rank.numa},
                               {"cpus", rank.cpus}});
    }
    item["order_reason"] = node.order_reason;
    item["nic_reason"] = node.nic_reason;
    item["binding_reason"] = node.binding_reason;
    out["nodes"].push_back(std::move(item));
  }
  for (const NcclSetting& setting : plan.settings) {
    out["settings"].push_back({{"name", setting.name},
                               {"who", WordOf(setting.who)},
                               {"value", setting.value},
                               {"reason", setting.reason}});
  }
  out["gradients"] = {{"precision", plan.gradients.precision},
                      {"precision_reason", plan.gradients.precision_reason},
                      {"bucket_bytes", plan.gradients.bucket_bytes},
                      {"bucket_reason", plan.gradients.bucket_reason}};
  for (const std::string& problem : plan.problems) {
    out["problems"].push_back(problem);
  }
  return out;
}

}  // namespace trainctl
