#include "runtime/topology/nccl_xml.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "runtime/base/status.h"
#include "runtime/base/text.h"
#include "runtime/topology/cpu_list.h"
#include "runtime/topology/device_links.h"
#include "runtime/topology/pcie_speed.h"
#include "runtime/topology/topology_text.h"
#include "runtime/topology/xml_tree.h"

namespace trainctl {
namespace {

// A device and where it hangs, before it has an index.
struct FoundGpu {
  Gpu gpu;
  PciPlace place;
  std::vector<std::pair<std::string, int>> peers;  // PCI address, NVLinks
};
struct FoundNic {
  Nic nic;
  PciPlace place;
};

int Number(absl::string_view text, int least, int most, int otherwise) {
  int number;
  return absl::SimpleAtoi(text, &number) && number >= least && number <= most ? number : otherwise;
}

// "0x10de" and "0x2335" as "10de:2335"; empty if unknown (bridges are written as 0xffff).
std::string DeviceId(const XmlElement& pci) {
  const absl::string_view vendor = absl::StripPrefix(pci.Attribute("vendor"), "0x");
  const absl::string_view device = absl::StripPrefix(pci.Attribute("device"), "0x");
  return vendor.size() != 4 || device.size() != 4 ? "" : absl::StrCat(vendor, ":", device);
}

class Reader {
 public:
  explicit Reader(absl::string_view file) : file_(file) {}

  absl::StatusOr<Topology> Read(const XmlElement& system) {
    if (system.name != "system") {
      return Wrong(system, absl::StrCat("expected <system>, found <", system.name,
                                        ">: this is no topology of NCCL"));
    }
    for (const XmlElement& child : system.children) {
      if (child.name == "cpu") {
        RETURN_IF_ERROR(Cpu(child));
      }
    }
    if (gpus_.size() > kMostGpus || nics_.size() > kMostNics) {
      return Wrong(system, absl::StrCat("more than ", kMostGpus, " GPUs or ", kMostNics, " NICs"));
    }
    RETURN_IF_ERROR(NumberGpus(system));
    return Finish();
  }

 private:
  absl::Status Wrong(const XmlElement& at, absl::string_view what) const {
    return absl::InvalidArgumentError(absl::StrCat(file_, ":", at.line, ": ", what));
  }

  absl::Status Cpu(const XmlElement& cpu) {
    PciPlace place;
    place.numa = Number(cpu.Attribute("numaid"), 0, 4095, -1);
    place.root = absl::StrCat("cpu", cpus_++);
    const std::optional<std::vector<int>> mask = ParseCpuMask(cpu.Attribute("affinity"));
    if (place.numa >= 0) {
      NumaNode node;
      node.id = place.numa;
      node.cpus = mask.has_value() ? CpuListText(*mask) : "";
      out_.numa.push_back(std::move(node));
    }
    if (out_.architecture.empty()) {
      out_.architecture = ValidUtf8(cpu.Attribute("arch"));
      out_.cpu = ValidUtf8(cpu.Attribute("vendor"));
    }
    return Children(cpu, place, nullptr);
  }

  // `pci` is the device that they belong to; nullptr below a CPU.
  absl::Status Children(const XmlElement& parent, const PciPlace& place, const XmlElement* pci) {
    for (const XmlElement& child : parent.children) {
      if (child.name == "pci") {
        RETURN_IF_ERROR(Pci(child, place));
      } else if (child.name == "nic") {
        RETURN_IF_ERROR(Children(child, place, pci));
      } else if (child.name == "net") {
        AddNet(child, place, pci);
      }
    }
    return absl::OkStatus();
  }

  absl::Status Pci(const XmlElement& pci, const PciPlace& place) {
    const absl::string_view device_class = pci.Attribute("class");
    const bool has_gpu = std::any_of(pci.children.begin(), pci.children.end(),
                                     [](const XmlElement& child) { return child.name == "gpu"; });
    if (has_gpu || absl::StartsWith(device_class, "0x0302") ||
        absl::StartsWith(device_class, "0x0300")) {
      return AddGpu(pci, place);
    }
    if (absl::StartsWith(device_class, "0x02")) {
      const size_t before = nics_.size();
      RETURN_IF_ERROR(Children(pci, place, &pci));
      if (nics_.size() == before) {  // a file that a cloud gives names no ports
        AddNic(pci, place, absl::StrCat("NIC", nics_.size()));
      }
      return absl::OkStatus();
    }
    PciPlace below = place;
    below.switches.push_back(absl::StrCat(pci.Attribute("busid"), "#", bridges_++));
    return Children(pci, below, nullptr);
  }

  absl::Status AddGpu(const XmlElement& pci, const PciPlace& place) {
    const std::optional<std::string> address = NormalPciAddress(pci.Attribute("busid"));
    if (!address.has_value()) {
      return Wrong(pci, "a GPU without a PCI address (busid)");
    }
    FoundGpu found;
    found.place = place;
    found.gpu.index = -1;
    found.gpu.pci = *address;
    found.gpu.device_id = DeviceId(pci);
    found.gpu.numa = place.numa;
    found.gpu.pcie.generation = PcieGeneration(pci.Attribute("link_speed"));
    found.gpu.pcie.width = Number(pci.Attribute("link_width"), 0, 32, 0);
    for (const XmlElement& gpu : pci.children) {
      if (gpu.name != "gpu") {
        continue;
      }
      found.gpu.index = Number(gpu.Attribute("dev"), 0, 1023, -1);
      found.gpu.sm = Number(gpu.Attribute("sm"), 10, 999, 0);
      for (const XmlElement& link : gpu.children) {
        if (link.name == "nvlink") {
          AddNvlink(link, &found);
        }
      }
    }
    gpus_.push_back(std::move(found));
    return absl::OkStatus();
  }

  void AddNvlink(const XmlElement& link, FoundGpu* found) {
    const int count = Number(link.Attribute("count"), 1, 144, 1);
    const std::optional<std::string> target = NormalPciAddress(link.Attribute("target"));
    // An address that no device has, or the class of a bridge: a switch, seen or hidden.
    if (!target.has_value() || absl::StartsWith(link.Attribute("tclass"), "0x0680")) {
      found->gpu.switch_nvlinks += count;
    } else {
      found->peers.emplace_back(*target, count);
    }
  }

  FoundNic& AddNic(const XmlElement& pci, const PciPlace& place, std::string name) {
    FoundNic& found = nics_.emplace_back();
    found.place = place;
    Nic& nic = found.nic;
    nic.name = std::move(name);
    nic.numa = place.numa;
    nic.pci = NormalPciAddress(pci.Attribute("busid")).value_or("");
    nic.device_id = DeviceId(pci);
    if (absl::StartsWith(pci.Attribute("class"), "0x0207")) {
      nic.link_layer = LinkLayer::kInfiniBand;
      nic.rdma = true;
    } else if (absl::StartsWith(nic.device_id, "1d0f:efa")) {
      nic.link_layer = LinkLayer::kEfa;
      nic.rdma = true;
    } else {
      nic.link_layer = LinkLayer::kEthernet;
    }
    return found;
  }

  void AddNet(const XmlElement& net, const PciPlace& place, const XmlElement* pci) {
    static const auto* nothing = new XmlElement;
    std::string name = ValidUtf8(net.Attribute("name").substr(0, 64));
    const int port = Number(net.Attribute("port"), 0, 255, 1);
    if (port > 1) {
      absl::StrAppend(&name, ":", port);
    }
    Nic& nic = AddNic(pci == nullptr ? *nothing : *pci, place, name).nic;
    nic.port = std::max(port, 1);
    nic.state = PortState::kActive;  // NCCL lists no other
    nic.rate_gbps = Number(net.Attribute("speed"), 0, 10'000'000, 0) / 1000.0;
    // Its socket transport writes no GUID.
    const absl::string_view guid = net.Attribute("guid");
    nic.rdma = nic.rdma || (!guid.empty() && guid != "0x0");
    if (!net.Attribute("gdr").empty()) {
      nic.gdr = net.Attribute("gdr") == "1" ? Answer::kYes : Answer::kNo;
    }
  }

  // By the numbers of the file if each GPU has its own, else by PCI address, as CUDA does.
  absl::Status NumberGpus(const XmlElement& system) {
    std::set<int> numbers;
    std::set<std::string> addresses;
    for (const FoundGpu& found : gpus_) {
      if (!addresses.insert(found.gpu.pci).second) {
        return Wrong(system, absl::StrCat("two GPUs have the PCI address ", found.gpu.pci));
      }
      numbers.insert(found.gpu.index);
    }
    const bool numbered = numbers.size() == gpus_.size() && numbers.count(-1) == 0;
    std::sort(gpus_.begin(), gpus_.end(), [&](const FoundGpu& a, const FoundGpu& b) {
      return numbered ? a.gpu.index < b.gpu.index : a.gpu.pci < b.gpu.pci;
    });
    if (!numbered) {
      for (size_t i = 0; i < gpus_.size(); ++i) {
        gpus_[i].gpu.index = static_cast<int>(i);
      }
    }
    return absl::OkStatus();
  }

  Topology Finish() {
    std::vector<PciPlace> gpus, nics;
    for (const FoundGpu& found : gpus_) {
      out_.gpus.push_back(found.gpu);
      gpus.push_back(found.place);
    }
    std::set<std::string> names;
    for (FoundNic& found : nics_) {
      while (found.nic.name.empty() || !names.insert(found.nic.name).second) {
        absl::StrAppend(&found.nic.name, "NIC", names.size());
      }
      out_.nics.push_back(found.nic);
      nics.push_back(found.place);
    }
    out_.links = LinksFromPlaces(out_, gpus, nics);
    for (Link& link : out_.links) {
      for (const FoundGpu& found : gpus_) {
        if (DeviceName(found.gpu) == link.a) {
          link.nvlinks = DirectLinks(found, link.b);
        }
      }
    }
    return std::move(out_);
  }

  int DirectLinks(const FoundGpu& from, const std::string& to) const {
    int count = 0;
    for (const FoundGpu& other : gpus_) {
      for (const auto& [address, links] : from.peers) {
        count += DeviceName(other.gpu) == to && other.gpu.pci == address ? links : 0;
      }
    }
    return count;
  }

  absl::string_view file_;
  Topology out_;
  std::vector<FoundGpu> gpus_;
  std::vector<FoundNic> nics_;
  int cpus_ = 0;
  int bridges_ = 0;
};

}  // namespace

absl::StatusOr<Topology> ParseNcclXml(absl::string_view text, absl::string_view file) {
  ASSIGN_OR_RETURN(const XmlElement root, ParseXml(text, file));
  return Reader(file).Read(root);
}

}  // namespace trainctl
