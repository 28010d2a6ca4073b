#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "runtime/base/file.h"
#include "runtime/topology/cpu_list.h"
#include "runtime/topology/sysfs.h"
#include "runtime/topology/sysfs_files.h"

namespace trainctl {
namespace {

// The value of the first line "KEY<space>: VALUE".
std::string ValueOf(absl::string_view text, absl::string_view key) {
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    const std::pair<absl::string_view, absl::string_view> parts =
        absl::StrSplit(line, absl::MaxSplits(':', 1));
    if (absl::StripAsciiWhitespace(parts.first) == key) {
      return std::string(absl::StripAsciiWhitespace(parts.second));
    }
  }
  return "";
}

// "Node 0 MemTotal:       65764532 kB"
int64_t MemoryMib(const std::string& meminfo) {
  for (absl::string_view line : absl::StrSplit(meminfo, '\n')) {
    const std::vector<absl::string_view> words = absl::StrSplit(line, ' ', absl::SkipEmpty());
    int64_t kib;
    if (words.size() >= 4 && words[2] == "MemTotal:" && absl::SimpleAtoi(words[3], &kib)) {
      return kib >> 10;
    }
  }
  return 0;
}

std::string NormalCpus(const std::string& text) {
  const auto cpus = ParseCpuList(text);
  return cpus.has_value() ? CpuListText(*cpus) : "";
}

std::vector<NumaNode> ReadNuma(const std::string& root) {
  const std::string folder = root + "/sys/devices/system/node";
  std::vector<NumaNode> nodes;
  for (const std::string& name : FolderEntries(folder)) {
    NumaNode node;
    if (!absl::StartsWith(name, "node") || !absl::SimpleAtoi(name.substr(4), &node.id) ||
        node.id < 0 || node.id > 4095) {
      continue;
    }
    node.cpus = NormalCpus(KernelText(JoinPath(folder, name + "/cpulist")));
    node.memory_mib = MemoryMib(KernelText(JoinPath(folder, name + "/meminfo")));
    nodes.push_back(std::move(node));
  }
  std::sort(nodes.begin(), nodes.end(),
            [](const NumaNode& a, const NumaNode& b) { return a.id < b.id; });
  const std::string online = NormalCpus(KernelText(root + "/sys/devices/system/cpu/online"));
  if (nodes.empty() && !online.empty()) {  // a kernel without NUMA
    nodes.push_back(NumaNode{0, online, 0});
  }
  return nodes;
}

std::string ReadHypervisor(const std::string& root, absl::string_view cpuinfo) {
  const std::string named = KernelText(root + "/sys/hypervisor/type");
  if (!named.empty()) {
    return named;
  }
  if (!absl::StrContains(absl::StrCat(" ", ValueOf(cpuinfo, "flags"), " "), " hypervisor ")) {
    return "";
  }
  const std::string dmi = root + "/sys/class/dmi/id/";
  const std::string vendor = KernelText(dmi + "sys_vendor");
  const std::string product = KernelText(dmi + "product_name");
  const std::string both(
      absl::StripAsciiWhitespace(absl::StrCat(vendor, vendor.empty() ? "" : " ", product)));
  return both.empty() ? "of unknown kind" : both.substr(0, 100);
}

// An IOMMU that passes addresses through does not stand between peers.
Answer ReadIommu(const std::string& root) {
  if (FolderEntries(root + "/sys/class/iommu").empty()) {
    return FolderEntries(root + "/sys/class").empty() ? Answer::kUnknown : Answer::kNo;
  }
  const std::string groups = root + "/sys/kernel/iommu_groups";
  for (const std::string& group : FolderEntries(groups)) {
    if (absl::StartsWith(KernelText(JoinPath(groups, group + "/type")), "DMA")) {
      return Answer::kYes;
    }
  }
  return Answer::kNo;
}

}  // namespace

void ReadNode(const std::string& root, Topology* topology) {
  const std::string cpuinfo = KernelText(root + "/proc/cpuinfo");
  topology->cpu = ValueOf(cpuinfo, "model name");
  topology->hypervisor = ReadHypervisor(root, cpuinfo);
  topology->numa = ReadNuma(root);
  topology->iommu = ReadIommu(root);
  topology->driver = KernelText(root + "/sys/module/nvidia/version");
  bool peermem = false;
  for (const char* file :
       {"/sys/module/nvidia_peermem/version", "/sys/kernel/mm/memory_peers/nv_mem/version",
        "/sys/kernel/mm/memory_peers/nv_mem_nc/version"}) {
    peermem = peermem || !KernelText(root + file).empty();
  }
  topology->peermem = peermem ? Answer::kYes : Answer::kNo;
}

}  // namespace trainctl
