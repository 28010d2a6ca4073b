#include <algorithm>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "runtime/base/file.h"
#include "runtime/topology/sysfs.h"
#include "runtime/topology/sysfs_files.h"
#include "runtime/topology/topology_text.h"

namespace trainctl {
namespace {

// The PCI device that a device of the kernel belongs to; virtio devices are below theirs.
std::string PciAddressOf(const std::string& device_link) {
  std::string address;
  for (absl::string_view part : absl::StrSplit(ResolvedPath(device_link), '/')) {
    if (NormalPciAddress(part) == part) {
      address = std::string(part);
    }
  }
  return address;
}

PortState StateOf(const std::string& text) {  // "4: ACTIVE"
  if (text.empty()) {
    return PortState::kUnknown;
  }
  switch (text[0]) {
    case '1':
      return PortState::kDown;
    case '2':
      return PortState::kInitializing;
    case '3':
      return PortState::kArmed;
    case '4':
      return PortState::kActive;
    default:
      return PortState::kUnknown;
  }
}

LinkLayer LayerOf(const std::string& text, const std::string& device_id) {
  if (absl::StartsWith(device_id, "1d0f:efa")) {
    return LinkLayer::kEfa;
  }
  return text == "InfiniBand" ? LinkLayer::kInfiniBand
         : text == "Ethernet" ? LinkLayer::kEthernet
                              : LinkLayer::kUnknown;
}

std::vector<Gid> ReadGids(const std::string& port) {
  constexpr size_t kMost = 256;
  std::vector<Gid> gids;
  for (const std::string& index : SortedEntries(JoinPath(port, "gids"))) {
    const std::string address = KernelText(JoinPath(port, "gids/" + index));
    Gid gid;
    // A free entry is all zero, or a prefix without an interface identifier.
    if (!absl::SimpleAtoi(index, &gid.index) || address.empty() ||
        absl::EndsWith(address, ":0000:0000:0000:0000") || gids.size() >= kMost) {
      continue;
    }
    gid.address = address;
    gid.type = KernelText(JoinPath(port, "gid_attrs/types/" + index));
    if (gid.type == "IB/RoCE v1") {
      const bool ethernet = KernelText(JoinPath(port, "link_layer")) == "Ethernet";
      gid.type = ethernet ? "RoCE v1" : "IB";
    }
    gid.netdev = KernelText(JoinPath(port, "gid_attrs/ndevs/" + index));
    gids.push_back(std::move(gid));
  }
  return gids;
}

void Locate(const std::string& address, const std::map<std::string, PciDevice>& devices, Nic* nic) {
  nic->pci = address;
  if (const auto device = devices.find(address); device != devices.end()) {
    nic->device_id = device->second.device_id;
    nic->numa = device->second.place.numa;
  }
}

Nic ReadPort(const std::string& device, const std::string& name, int number,
             const std::map<std::string, PciDevice>& devices) {
  const std::string port = absl::StrCat(device, "/ports/", number);
  Nic nic;
  nic.name = number == 1 ? name : absl::StrCat(name, ":", number);
  nic.port = number;
  nic.rdma = true;
  Locate(PciAddressOf(JoinPath(device, "device")), devices, &nic);
  nic.state = StateOf(KernelText(JoinPath(port, "state")));
  // "400 Gb/sec (4X NDR)"
  const std::string rate = KernelText(JoinPath(port, "rate"));
  double gbps;
  nic.rate_gbps = absl::SimpleAtod(rate.substr(0, rate.find(' ')), &gbps) && gbps > 0 ? gbps : 0;
  nic.link_layer = LayerOf(KernelText(JoinPath(port, "link_layer")), nic.device_id);
  nic.gids = ReadGids(port);
  for (const Gid& gid : nic.gids) {
    if (!gid.netdev.empty()) {
      nic.netdev = gid.netdev;
      break;
    }
  }
  return nic;
}

Nic ReadInterface(const std::string& interface, const std::string& name,
                  const std::map<std::string, PciDevice>& devices) {
  Nic nic;
  nic.name = name;
  nic.netdev = name;
  nic.link_layer = LinkLayer::kEthernet;
  nic.gdr = Answer::kNo;
  Locate(PciAddressOf(JoinPath(interface, "device")), devices, &nic);
  const std::string state = KernelText(JoinPath(interface, "operstate"));
  nic.state = state == "up"     ? PortState::kActive
              : state == "down" ? PortState::kDown
                                : PortState::kUnknown;
  nic.rate_gbps = std::max(0, KernelNumber(JoinPath(interface, "speed"), 0)) / 1000.0;
  return nic;
}

}  // namespace

std::vector<Nic> ReadNics(const std::string& root,
                          const std::map<std::string, PciDevice>& devices) {
  std::vector<Nic> nics;
  std::set<std::string> taken;  // PCI devices of RDMA ports
  const std::string rdma = root + "/sys/class/infiniband";
  for (const std::string& name : SortedEntries(rdma)) {
    const std::string device = JoinPath(rdma, name);
    for (const std::string& port : SortedEntries(JoinPath(device, "ports"))) {
      int number;
      if (absl::SimpleAtoi(port, &number) && number >= 1 && number <= 255 &&
          nics.size() < kMostNics) {
        nics.push_back(ReadPort(device, name, number, devices));
        taken.insert(nics.back().pci);
      }
    }
  }
  const std::string net = root + "/sys/class/net";
  for (const std::string& name : SortedEntries(net)) {
    const std::string address = PciAddressOf(JoinPath(net, name + "/device"));
    if (!address.empty() && taken.count(address) == 0 && nics.size() < kMostNics) {
      nics.push_back(ReadInterface(JoinPath(net, name), name, devices));
    }
  }
  return nics;
}

}  // namespace trainctl
