#include "runtime/topology/topology_text.h"

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/text.h"
#include "runtime/json/json_text.h"
#include "runtime/topology/nccl_xml.h"

namespace trainctl {
namespace {

using Json = nlohmann::ordered_json;

void Put(Json* object, const char* key, const std::string& text) {
  if (!text.empty()) {
    (*object)[key] = ValidUtf8(text);
  }
}
void Put(Json* object, const char* key, int64_t number, int64_t unknown = 0) {
  if (number != unknown) {
    (*object)[key] = number;
  }
}
template <typename E>
void PutWord(Json* object, const char* key, E value, E unknown) {
  if (value != unknown) {
    (*object)[key] = WordOf(value);
  }
}

Json GpuDocument(const Gpu& gpu) {
  Json out;
  out["index"] = gpu.index;
  Put(&out, "name", gpu.name);
  Put(&out, "uuid", gpu.uuid);
  Put(&out, "pci", gpu.pci);
  Put(&out, "device_id", gpu.device_id);
  Put(&out, "numa", gpu.numa, -1);
  Put(&out, "sm", gpu.sm);
  Put(&out, "memory_mib", gpu.memory_mib);
  Put(&out, "pcie_generation", gpu.pcie.generation);
  Put(&out, "pcie_width", gpu.pcie.width);
  Put(&out, "pcie_most_generation", gpu.pcie.most_generation);
  Put(&out, "pcie_most_width", gpu.pcie.most_width);
  Put(&out, "switch_nvlinks", gpu.switch_nvlinks);
  PutWord(&out, "fabric", gpu.fabric, FabricState::kNone);
  if (gpu.mig_enabled) {
    Json slices = Json::array();
    for (const MigSlice& slice : gpu.mig) {
      Json item;
      item["uuid"] = ValidUtf8(slice.uuid);
      Put(&item, "profile", slice.profile);
      Put(&item, "memory_mib", slice.memory_mib);
      slices.push_back(std::move(item));
    }
    out["mig"] = std::move(slices);
  }
  Put(&out, "problem", gpu.problem);
  return out;
}

Json NicDocument(const Nic& nic) {
  Json out;
  out["name"] = ValidUtf8(nic.name);
  out["port"] = nic.port;
  out["rdma"] = nic.rdma;
  Put(&out, "pci", nic.pci);
  Put(&out, "device_id", nic.device_id);
  Put(&out, "numa", nic.numa, -1);
  PutWord(&out, "state", nic.state, PortState::kUnknown);
  if (nic.rate_gbps > 0) {
    out["rate_gbps"] = nic.rate_gbps;
  }
  PutWord(&out, "link_layer", nic.link_layer, LinkLayer::kUnknown);
  Put(&out, "netdev", nic.netdev);
  PutWord(&out, "gdr", nic.gdr, Answer::kUnknown);
  for (const Gid& gid : nic.gids) {
    Json item;
    item["index"] = gid.index;
    item["address"] = ValidUtf8(gid.address);
    Put(&item, "type", gid.type);
    Put(&item, "netdev", gid.netdev);
    out["gids"].push_back(std::move(item));
  }
  return out;
}

Json LinkDocument(const Link& link) {
  Json out;
  out["a"] = ValidUtf8(link.a);
  out["b"] = ValidUtf8(link.b);
  PutWord(&out, "path", link.path, PciPath::kUnknown);
  Put(&out, "nvlinks", link.nvlinks);
  PutWord(&out, "p2p", link.p2p, PeerAccess::kUnknown);
  return out;
}

Json Texts(const std::vector<std::string>& texts) {
  Json out = Json::array();
  for (const std::string& text : texts) {
    out.push_back(ValidUtf8(text));
  }
  return out;
}

bool IsFlat(const Json& value) {
  for (const Json& item : value) {
    if (item.is_structured() && !item.empty()) {
      return false;
    }
  }
  return true;
}

// A JSON value on one line, with the spaces that YAML wants.
void Flow(const Json& value, std::string* out) {
  const bool list = value.is_array();
  if (!value.is_structured()) {
    absl::StrAppend(out, JsonText(value));
    return;
  }
  absl::StrAppend(out, list ? "[" : "{");
  bool first = true;
  for (const auto& [key, item] : value.items()) {
    absl::StrAppend(out, first ? "" : ", ", list ? "" : key, list ? "" : ": ");
    Flow(item, out);
    first = false;
  }
  absl::StrAppend(out, list ? "]" : "}");
}

void Block(const Json& value, int indent, std::string* out) {
  const std::string margin(static_cast<size_t>(indent), ' ');
  for (const auto& [key, item] : value.items()) {
    absl::StrAppend(out, margin, value.is_array() ? "-" : absl::StrCat(key, ":"));
    if (!item.is_structured() || IsFlat(item)) {
      absl::StrAppend(out, " ");
      Flow(item, out);
      absl::StrAppend(out, "\n");
    } else {
      absl::StrAppend(out, "\n");
      Block(item, indent + 2, out);
    }
  }
}

}  // namespace

Json TopologyDocument(const Topology& topology) {
  Json out;
  out["schema"] = kTopologySchema;
  out["type"] = "topology";
  out["node"] = ValidUtf8(topology.node);
  Put(&out, "cpu", topology.cpu);
  Put(&out, "architecture", topology.architecture);
  Put(&out, "hypervisor", topology.hypervisor);
  Put(&out, "driver", topology.driver);
  Put(&out, "cuda", topology.cuda);
  PutWord(&out, "iommu", topology.iommu, Answer::kUnknown);
  PutWord(&out, "acs", topology.acs, Answer::kUnknown);
  if (!topology.acs_bridges.empty()) {
    out["acs_bridges"] = Texts(topology.acs_bridges);
  }
  PutWord(&out, "peermem", topology.peermem, Answer::kUnknown);
  if (topology.shm_mib.has_value()) {
    out["shm_mib"] = *topology.shm_mib;
  }
  if (topology.memlock_kib.has_value()) {
    out["memlock_kib"] = *topology.memlock_kib;
  }
  for (const char* key : {"numa_nodes", "gpus", "nics", "links"}) {
    out[key] = Json::array();
  }
  for (const NumaNode& node : topology.numa) {
    Json item;
    item["id"] = node.id;
    item["cpus"] = node.cpus;
    Put(&item, "memory_mib", node.memory_mib);
    out["numa_nodes"].push_back(std::move(item));
  }
  for (const Gpu& gpu : topology.gpus) {
    out["gpus"].push_back(GpuDocument(gpu));
  }
  for (const Nic& nic : topology.nics) {
    out["nics"].push_back(NicDocument(nic));
  }
  for (const Link& link : topology.links) {
    out["links"].push_back(LinkDocument(link));
  }
  if (!topology.bad_peer_access.empty()) {
    out["bad_peer_access"] = Texts(topology.bad_peer_access);
  }
  if (!topology.problems.empty()) {
    out["problems"] = Texts(topology.problems);
  }
  return out;
}

std::string YamlText(const Json& document) {
  std::string out;
  Block(document, 0, &out);
  return out;
}

absl::StatusOr<Topology> ParseAnyTopology(const std::string& text, absl::string_view file) {
  const absl::string_view begin = absl::StripLeadingAsciiWhitespace(text);
  return !begin.empty() && begin.front() == '<' ? ParseNcclXml(text, file)
                                                : ParseTopology(text, file);
}

}  // namespace trainctl
