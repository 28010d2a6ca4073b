#include <cmath>
#include <set>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"
#include "runtime/topology/cpu_list.h"
#include "runtime/topology/pci_path.h"
#include "runtime/topology/topology_text.h"
#include "runtime/yaml/yaml_tree.h"

namespace trainctl {
namespace {

constexpr size_t kLongestText = 1000;
constexpr int64_t kMostMib = int64_t{1} << 40;

// The first problem of a file; later ones are dropped.
struct Problem {
  absl::string_view file;
  absl::Status status;

  void Report(int line, absl::string_view message) {
    if (status.ok()) {
      status = absl::InvalidArgumentError(absl::StrCat(file, ":", line, ": ", message));
    }
  }
};

// Reads one mapping key by key: each call takes the key's value, if it is there and right.
class Fields {
 public:
  Fields(const YamlNode& node, std::string where, Problem* problem)
      : node_(node), where_(std::move(where)), problem_(problem) {
    if (node.kind != YamlNode::Kind::kMap) {
      problem_->Report(node.line,
                       absl::StrCat(where_, " must be a mapping of keys to values, found ",
                                    YamlKindName(node.kind)));
    }
  }

  void Text(const char* key, std::string* out) {
    if (const YamlNode* value = Scalar(key); value != nullptr) {
      if (value->scalar.size() > kLongestText) {
        Wrong(*value, key, absl::StrCat("a text of at most ", kLongestText, " bytes"));
        return;
      }
      *out = value->scalar;
    }
  }
  template <typename T>
  void Integer(const char* key, int64_t least, int64_t most, T* out) {
    int64_t number;
    if (const YamlNode* value = Scalar(key); value != nullptr) {
      if (value->quoted || !absl::SimpleAtoi(value->scalar, &number) || number < least ||
          number > most) {
        Wrong(*value, key, absl::StrCat("a whole number from ", least, " to ", most));
        return;
      }
      *out = static_cast<T>(number);
    }
  }
  void Rate(const char* key, double* out) {
    double number;
    if (const YamlNode* value = Scalar(key); value != nullptr) {
      if (value->quoted || !absl::SimpleAtod(value->scalar, &number) || !(number >= 0) ||
          number > 1e6) {
        Wrong(*value, key, "Gb/s from 0 to 1e6");
        return;
      }
      *out = number;
    }
  }
  void Flag(const char* key, bool* out) {
    if (const YamlNode* value = Scalar(key); value != nullptr) {
      if (value->quoted || (value->scalar != "true" && value->scalar != "false")) {
        Wrong(*value, key, "true or false");
        return;
      }
      *out = value->scalar == "true";
    }
  }
  template <typename E>
  void Word(const char* key, E* out) {
    const YamlNode* value = Scalar(key);
    if (value == nullptr) {
      return;
    }
    std::string words;
    for (int i = 0; i <= static_cast<int>(EnumRange<E>::kLast); ++i) {
      if (value->scalar == WordOf(static_cast<E>(i))) {
        *out = static_cast<E>(i);
        return;
      }
      absl::StrAppend(&words, i > 0 ? ", " : "", WordOf(static_cast<E>(i)));
    }
    Wrong(*value, key, absl::StrCat("one of ", words));
  }
  void PciAddress(const char* key, std::string* out) {
    if (const YamlNode* value = Scalar(key); value != nullptr) {
      const std::optional<std::string> address = NormalPciAddress(value->scalar);
      if (!address.has_value()) {
        Wrong(*value, key, "a PCI address such as 0000:3b:00.0");
        return;
      }
      *out = *address;
    }
  }
  void Cpus(const char* key, std::string* out) {
    if (const YamlNode* value = Scalar(key); value != nullptr) {
      const auto cpus = ParseCpuList(value->scalar);
      if (!cpus.has_value()) {
        Wrong(*value, key, "a list of CPUs such as 0-15,32-47");
        return;
      }
      *out = CpuListText(*cpus);
    }
  }
  // Items of a list; none if it is absent.
  const std::vector<YamlNode>& List(const char* key, size_t most) {
    static const auto* none = new std::vector<YamlNode>;
    const YamlNode* value = Find(key);
    if (value == nullptr || value->kind == YamlNode::Kind::kNull) {
      return *none;
    }
    if (value->kind != YamlNode::Kind::kSequence || value->items.size() > most) {
      Wrong(*value, key, absl::StrCat("a list of at most ", most));
      return *none;
    }
    return value->items;
  }
  void Texts(const char* key, size_t most, std::vector<std::string>* out) {
    for (const YamlNode& item : List(key, most)) {
      if (item.kind != YamlNode::Kind::kScalar || item.scalar.size() > kLongestText) {
        Wrong(item, key, absl::StrCat("texts of at most ", kLongestText, " bytes"));
        return;
      }
      out->push_back(item.scalar);
    }
  }
  bool Has(const char* key) { return Find(key) != nullptr; }
  void Report(absl::string_view message) {
    problem_->Report(node_.line, absl::StrCat(where_, ": ", message));
  }
  std::string Of(const char* key, size_t index) const { return absl::StrCat(key, "[", index, "]"); }
  // After all others.
  void RefuseUnknownKeys() {
    for (const YamlEntry& entry : node_.entries) {
      if (known_.count(entry.key.scalar) == 0) {
        problem_->Report(entry.key.line, absl::StrCat(where_, ": unknown key \"",
                                                      entry.key.scalar.substr(0, 60), "\""));
      }
    }
  }

 private:
  const YamlNode* Find(const char* key) {
    known_.insert(key);
    for (const YamlEntry& entry : node_.entries) {
      if (entry.key.scalar == key) {
        return &entry.value;
      }
    }
    return nullptr;
  }
  const YamlNode* Scalar(const char* key) {
    const YamlNode* value = Find(key);
    if (value != nullptr && value->kind != YamlNode::Kind::kScalar) {
      Wrong(*value, key, "a single value");
      return nullptr;
    }
    return value;
  }
  void Wrong(const YamlNode& value, const char* key, absl::string_view expected) {
    problem_->Report(value.line,
                     absl::StrCat(where_, ".", key, ": found ",
                                  value.kind == YamlNode::Kind::kScalar
                                      ? absl::StrCat("\"", value.scalar.substr(0, 60), "\"")
                                      : YamlKindName(value.kind),
                                  ", expected ", expected));
  }

  const YamlNode& node_;
  std::string where_;
  Problem* problem_;
  std::set<std::string> known_;
};

Gpu ReadGpu(const YamlNode& node, const std::string& where, Problem* problem) {
  Fields fields(node, where, problem);
  Gpu gpu;
  if (!fields.Has("index")) {
    fields.Report("index is missing");
  }
  fields.Integer("index", 0, 1023, &gpu.index);
  fields.Text("name", &gpu.name);
  fields.Text("uuid", &gpu.uuid);
  fields.PciAddress("pci", &gpu.pci);
  fields.Text("device_id", &gpu.device_id);
  fields.Integer("numa", 0, 4095, &gpu.numa);
  fields.Integer("sm", 10, 999, &gpu.sm);
  fields.Integer("memory_mib", 0, kMostMib, &gpu.memory_mib);
  fields.Integer("pcie_generation", 1, 9, &gpu.pcie.generation);
  fields.Integer("pcie_width", 1, 32, &gpu.pcie.width);
  fields.Integer("pcie_most_generation", 1, 9, &gpu.pcie.most_generation);
  fields.Integer("pcie_most_width", 1, 32, &gpu.pcie.most_width);
  fields.Integer("switch_nvlinks", 0, 144, &gpu.switch_nvlinks);
  fields.Word("fabric", &gpu.fabric);
  gpu.mig_enabled = fields.Has("mig");
  const std::vector<YamlNode>& slices = fields.List("mig", 16);
  for (size_t i = 0; i < slices.size(); ++i) {
    Fields slice(slices[i], absl::StrCat(where, ".", fields.Of("mig", i)), problem);
    MigSlice& read = gpu.mig.emplace_back();
    slice.Text("uuid", &read.uuid);
    slice.Text("profile", &read.profile);
    slice.Integer("memory_mib", 0, kMostMib, &read.memory_mib);
    slice.RefuseUnknownKeys();
  }
  fields.Text("problem", &gpu.problem);
  fields.RefuseUnknownKeys();
  return gpu;
}

Nic ReadNic(const YamlNode& node, const std::string& where, Problem* problem) {
  Fields fields(node, where, problem);
  Nic nic;
  fields.Text("name", &nic.name);
  if (nic.name.empty()) {
    fields.Report("name is missing");
  }
  fields.Integer("port", 1, 255, &nic.port);
  fields.Flag("rdma", &nic.rdma);
  fields.PciAddress("pci", &nic.pci);
  fields.Text("device_id", &nic.device_id);
  fields.Integer("numa", 0, 4095, &nic.numa);
  fields.Word("state", &nic.state);
  fields.Rate("rate_gbps", &nic.rate_gbps);
  fields.Word("link_layer", &nic.link_layer);
  fields.Text("netdev", &nic.netdev);
  fields.Word("gdr", &nic.gdr);
  const std::vector<YamlNode>& gids = fields.List("gids", 4096);
  for (size_t i = 0; i < gids.size(); ++i) {
    Fields gid(gids[i], absl::StrCat(where, ".", fields.Of("gids", i)), problem);
    Gid& read = nic.gids.emplace_back();
    gid.Integer("index", 0, 65535, &read.index);
    gid.Text("address", &read.address);
    gid.Text("type", &read.type);
    gid.Text("netdev", &read.netdev);
    gid.RefuseUnknownKeys();
  }
  fields.RefuseUnknownKeys();
  return nic;
}

Link ReadLink(const YamlNode& node, const std::string& where, Problem* problem) {
  Fields fields(node, where, problem);
  Link link;
  fields.Text("a", &link.a);
  fields.Text("b", &link.b);
  fields.Word("path", &link.path);
  fields.Integer("nvlinks", 0, 144, &link.nvlinks);
  fields.Word("p2p", &link.p2p);
  fields.RefuseUnknownKeys();
  return link;
}

void ReadNode(Fields* fields, Topology* out) {
  fields->Text("node", &out->node);
  fields->Text("cpu", &out->cpu);
  fields->Text("architecture", &out->architecture);
  fields->Text("hypervisor", &out->hypervisor);
  fields->Text("driver", &out->driver);
  fields->Text("cuda", &out->cuda);
  fields->Word("iommu", &out->iommu);
  fields->Word("acs", &out->acs);
  fields->Texts("acs_bridges", 4096, &out->acs_bridges);
  fields->Word("peermem", &out->peermem);
  if (fields->Has("shm_mib")) {
    fields->Integer("shm_mib", 0, kMostMib, &out->shm_mib.emplace());
  }
  if (fields->Has("memlock_kib")) {
    fields->Integer("memlock_kib", -1, kMostMib, &out->memlock_kib.emplace());
  }
  fields->Texts("bad_peer_access", 1000, &out->bad_peer_access);
  fields->Texts("problems", 1000, &out->problems);
}

// What no single field shows: names that clash, links that lead nowhere.
absl::Status CheckWhole(const Topology& topology, absl::string_view file) {
  std::set<std::string> names, uuids;
  for (const Gpu& gpu : topology.gpus) {
    if (!names.insert(DeviceName(gpu)).second) {
      return absl::InvalidArgumentError(absl::StrCat(file, ": two GPUs have index ", gpu.index));
    }
    if (!gpu.uuid.empty() && !uuids.insert(gpu.uuid).second) {
      return absl::InvalidArgumentError(absl::StrCat(file, ": two GPUs have UUID ", gpu.uuid));
    }
  }
  for (const Nic& nic : topology.nics) {
    if (!names.insert(nic.name).second) {
      return absl::InvalidArgumentError(absl::StrCat(file, ": two devices are called ", nic.name));
    }
  }
  std::set<std::pair<std::string, std::string>> pairs;
  for (const Link& link : topology.links) {
    for (const std::string& end : {link.a, link.b}) {
      if (names.count(end) == 0) {
        return absl::InvalidArgumentError(absl::StrCat(
            file, ": a link names the device \"", end.substr(0, 60), "\", which is not listed"));
      }
    }
    if (link.a == link.b || !pairs.insert(std::minmax(link.a, link.b)).second) {
      return absl::InvalidArgumentError(
          absl::StrCat(file, ": the link of ", link.a, " and ", link.b,
                       link.a == link.b ? " has one end only" : " is given twice"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Topology> ParseTopology(const std::string& text, absl::string_view file) {
  ASSIGN_OR_RETURN(const YamlNode root, ParseYaml(text, file));
  Problem problem{file, absl::OkStatus()};
  Fields fields(root, "topology", &problem);
  int schema = 0;
  std::string type = "topology";
  fields.Integer("schema", 1, 1 << 30, &schema);
  fields.Text("type", &type);
  if (problem.status.ok() && (schema != kTopologySchema || type != "topology")) {
    return absl::InvalidArgumentError(absl::StrCat(
        file, ": this is no topology of schema ", kTopologySchema,
        schema == 0 ? " (the key schema is missing)" : absl::StrCat(" but of schema ", schema),
        "; trainctl topo --json writes one"));
  }
  Topology out;
  ReadNode(&fields, &out);
  const std::vector<YamlNode>& numa = fields.List("numa_nodes", 4096);
  for (size_t i = 0; i < numa.size(); ++i) {
    Fields node(numa[i], fields.Of("numa_nodes", i), &problem);
    NumaNode& read = out.numa.emplace_back();
    node.Integer("id", 0, 4095, &read.id);
    node.Cpus("cpus", &read.cpus);
    node.Integer("memory_mib", 0, kMostMib, &read.memory_mib);
    node.RefuseUnknownKeys();
  }
  const std::vector<YamlNode>& gpus = fields.List("gpus", kMostGpus);
  for (size_t i = 0; i < gpus.size(); ++i) {
    out.gpus.push_back(ReadGpu(gpus[i], fields.Of("gpus", i), &problem));
  }
  const std::vector<YamlNode>& nics = fields.List("nics", kMostNics);
  for (size_t i = 0; i < nics.size(); ++i) {
    out.nics.push_back(ReadNic(nics[i], fields.Of("nics", i), &problem));
  }
  constexpr size_t kMostLinks = (kMostGpus + kMostNics) * (kMostGpus + kMostNics) / 2;
  const std::vector<YamlNode>& links = fields.List("links", kMostLinks);
  for (size_t i = 0; i < links.size(); ++i) {
    out.links.push_back(ReadLink(links[i], fields.Of("links", i), &problem));
  }
  fields.Has("plan");  // known, and not read
  fields.RefuseUnknownKeys();
  RETURN_IF_ERROR(problem.status);
  RETURN_IF_ERROR(CheckWhole(out, file));
  std::sort(out.gpus.begin(), out.gpus.end(),
            [](const Gpu& a, const Gpu& b) { return a.index < b.index; });
  return out;
}

}  // namespace trainctl
