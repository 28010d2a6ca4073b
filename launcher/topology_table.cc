#include "launcher/topology_table.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "runtime/topology/gpu_catalogue.h"

namespace trainctl {
namespace {

using Row = std::vector<std::string>;

// Columns as wide as their widest cell, two spaces apart.
std::string Aligned(const std::vector<Row>& rows) {
  std::vector<size_t> widths;
  for (const Row& row : rows) {
    widths.resize(std::max(widths.size(), row.size()), 0);
    for (size_t i = 0; i < row.size(); ++i) {
      widths[i] = std::max(widths[i], row[i].size());
    }
  }
  std::string out;
  for (const Row& row : rows) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) {
      absl::StrAppendFormat(&line, "%-*s  ", static_cast<int>(widths[i]), row[i]);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    absl::StrAppend(&out, line, "\n");
  }
  return out;
}

std::string Peak(const std::optional<double>& teraflops) {
  return teraflops.has_value() ? absl::StrCat(*teraflops) : "n/a";
}

std::string Pcie(const PcieLink& link) {
  const auto one = [](int generation, int width) {
    return absl::StrCat(generation > 0 ? absl::StrCat("gen", generation) : "?", " x",
                        width > 0 ? absl::StrCat(width) : "?");
  };
  if (link.generation == 0 && link.width == 0 && link.most_generation == 0) {
    return "?";
  }
  const std::string now = one(link.generation, link.width);
  const std::string most = one(link.most_generation, link.most_width);
  return link.most_generation == 0 || now == most ? now : absl::StrCat(now, " of ", most);
}

std::string Gpus(const Topology& topology) {
  std::vector<Row> rows = {{"GPU", "model", "memory", "sm", "PCIe", "fp32 TFLOP/s", "TF32", "bf16",
                            "fp8", "memory at", "power"}};
  for (const Gpu& gpu : topology.gpus) {
    const GpuModel* model = gpu.mig_enabled ? nullptr : FindGpuModel(gpu);
    Row row = {absl::StrCat(gpu.index), ModelName(gpu),
               gpu.memory_mib > 0 ? absl::StrCat(gpu.memory_mib, " MiB") : "?",
               gpu.sm > 0 ? absl::StrFormat("%d.%d", gpu.sm / 10, gpu.sm % 10) : "?",
               Pcie(gpu.pcie)};
    if (model == nullptr) {
      row.insert(row.end(), {"n/a", "n/a", "n/a", "n/a", "n/a", "n/a"});
    } else {
      row.insert(row.end(),
                 {absl::StrCat(model->fp32), Peak(model->tf32), Peak(model->bf16), Peak(model->fp8),
                  absl::StrCat(model->bandwidth, " GB/s"), absl::StrCat(model->watts, " W")});
    }
    rows.push_back(std::move(row));
    for (const MigSlice& slice : gpu.mig) {
      rows.push_back({"", absl::StrCat("MIG ", slice.profile),
                      absl::StrCat(slice.memory_mib, " MiB"), "", slice.uuid});
    }
  }
  return topology.gpus.empty() ? "no GPU\n" : Aligned(rows);
}

std::string Nics(const Topology& topology) {
  std::vector<Row> rows = {{"NIC", "kind", "state", "rate", "interface", "GPUDirect"}};
  for (const Nic& nic : topology.nics) {
    const std::string kind = absl::StrCat(
        nic.link_layer == LinkLayer::kEthernet && nic.rdma ? "RoCE" : WordOf(nic.link_layer));
    rows.push_back({nic.name, kind, WordOf(nic.state),
                    nic.rate_gbps > 0 ? absl::StrCat(nic.rate_gbps, " Gb/s") : "?",
                    nic.netdev.empty() ? "-" : nic.netdev, nic.rdma ? WordOf(nic.gdr) : "-"});
  }
  return topology.nics.empty() ? "" : absl::StrCat("\n", Aligned(rows));
}

std::string CpusOf(const Topology& topology, int numa) {
  for (const NumaNode& node : topology.numa) {
    if (node.id == numa) {
      return node.cpus;
    }
  }
  return "?";
}

std::string Connections(const Topology& topology) {
  Row names;
  for (const Gpu& gpu : topology.gpus) {
    names.push_back(DeviceName(gpu));
  }
  for (const Nic& nic : topology.nics) {
    names.push_back(nic.name);
  }
  std::vector<Row> rows = {{""}};
  rows[0].insert(rows[0].end(), names.begin(), names.end());
  rows[0].insert(rows[0].end(), {"CPUs", "NUMA"});
  for (size_t i = 0; i < names.size(); ++i) {
    Row row = {names[i]};
    for (const std::string& other : names) {
      row.push_back(other == names[i] ? " X" : ConnectionWord(topology, names[i], other));
    }
    const int told = i < topology.gpus.size() ? topology.gpus[i].numa
                                              : topology.nics[i - topology.gpus.size()].numa;
    const int numa = NumaNodeOf(topology, told);
    row.push_back(CpusOf(topology, numa));
    row.push_back(numa < 0 ? "?" : absl::StrCat(numa));
    rows.push_back(std::move(row));
  }
  return names.size() < 2
             ? ""
             : absl::StrCat("\n", Aligned(rows),
                            "NV#: NVLinks   PIX: one PCIe switch   PXB: several   PHB: the CPU   "
                            "NODE: two host bridges   SYS: two sockets\n");
}

std::string Node(const Topology& topology) {
  Row parts;
  for (const std::string& part : {topology.cpu, topology.architecture}) {
    if (!part.empty()) {
      parts.push_back(part);
    }
  }
  if (!topology.hypervisor.empty()) {
    parts.push_back(absl::StrCat("in a virtual machine (", topology.hypervisor, ")"));
  }
  parts.push_back(topology.driver.empty() ? "no NVIDIA driver"
                                          : absl::StrCat("driver ", topology.driver));
  if (!topology.cuda.empty()) {
    parts.push_back(absl::StrCat("CUDA up to ", topology.cuda));
  }
  std::string out = absl::StrCat(topology.node.empty() ? "node" : topology.node, ": ",
                                 absl::StrJoin(parts, ", "), "\n");
  for (const NumaNode& node : topology.numa) {
    absl::StrAppend(&out, "  NUMA node ", node.id, ": CPUs ", node.cpus,
                    node.memory_mib > 0 ? absl::StrCat(", ", node.memory_mib >> 10, " GiB") : "",
                    "\n");
  }
  absl::StrAppend(&out, "  IOMMU ", WordOf(topology.iommu), ", ACS ", WordOf(topology.acs),
                  ", GPUDirect module ", WordOf(topology.peermem), "\n\n");
  return out;
}

}  // namespace

std::string ConnectionWord(const Topology& topology, const std::string& a, const std::string& b) {
  const Link* link = FindLink(topology, a, b);
  if (link != nullptr && link->nvlinks > 0) {
    return absl::StrCat("NV", link->nvlinks);
  }
  int to_switches[2] = {0, 0};
  for (const Gpu& gpu : topology.gpus) {
    to_switches[0] = DeviceName(gpu) == a ? gpu.switch_nvlinks : to_switches[0];
    to_switches[1] = DeviceName(gpu) == b ? gpu.switch_nvlinks : to_switches[1];
  }
  if (to_switches[0] > 0 && to_switches[1] > 0) {
    return absl::StrCat("NV", std::min(to_switches[0], to_switches[1]));
  }
  return WordOf(link == nullptr ? PciPath::kUnknown : link->path);
}

std::string TopologyTable(const Topology& topology) {
  return absl::StrCat(Node(topology), Gpus(topology), Nics(topology), Connections(topology));
}

}  // namespace trainctl
