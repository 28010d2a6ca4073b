#include <algorithm>
#include <cstdint>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "runtime/base/file.h"
#include "runtime/topology/pcie_speed.h"
#include "runtime/topology/sysfs.h"
#include "runtime/topology/sysfs_files.h"

namespace trainctl {
namespace {

uint32_t Word(const std::string& bytes, size_t at) {
  uint32_t word = 0;
  for (size_t i = 0; i < 4; ++i) {
    word |= static_cast<uint32_t>(static_cast<unsigned char>(bytes[at + i])) << (8 * i);
  }
  return word;
}

// Walks the extended capabilities of PCI configuration space to Access Control Services.
Answer RedirectsPeers(const std::string& config) {
  constexpr size_t kFirst = 0x100;
  constexpr uint32_t kAcs = 0x000d;
  constexpr uint32_t kRedirecting = 0x0d;  // source validation, request and completion redirect
  if (config.size() < kFirst + 4) {
    return Answer::kUnknown;
  }
  size_t at = kFirst;
  for (int steps = 0; at >= kFirst && at + 8 <= config.size() && steps < 100; ++steps) {
    const uint32_t header = Word(config, at);
    if ((header & 0xffff) == kAcs) {
      return (Word(config, at + 4) >> 16 & kRedirecting) != 0 ? Answer::kYes : Answer::kNo;
    }
    at = header >> 20;
  }
  return Answer::kNo;
}

std::vector<std::string> BridgesAbove(const std::string& device_path) {
  std::vector<std::string> bridges;
  for (absl::string_view part : absl::StrSplit(device_path, '/')) {
    if (NormalPciAddress(part) == part) {
      bridges.emplace_back(part);
    }
  }
  if (!bridges.empty()) {
    bridges.pop_back();  // the device itself
  }
  return bridges;
}

}  // namespace

std::map<std::string, PciDevice> ReadPciDevices(const std::string& root) {
  std::map<std::string, PciDevice> devices;
  const std::string all = root + "/sys/bus/pci/devices";
  for (const std::string& name : FolderEntries(all)) {
    const std::string path = ResolvedPath(JoinPath(all, name));
    const std::optional<std::string> address = NormalPciAddress(name);
    if (path.empty() || !address.has_value()) {
      continue;
    }
    const auto link = [&](const char* file) { return KernelText(JoinPath(path, file)); };
    PciDevice device;
    device.address = *address;
    device.device_class = link("class");
    device.device_id = absl::StrCat(absl::StripPrefix(link("vendor"), "0x"), ":",
                                    absl::StripPrefix(link("device"), "0x"));
    device.place = PlaceFromSysfs(path, KernelNumber(JoinPath(path, "numa_node"), -1));
    device.bridges = BridgesAbove(path);
    // Virtual machines write 255 lanes and "Unknown".
    const auto width = [&](const char* file) {
      const int lanes = KernelNumber(JoinPath(path, file), 0);
      return lanes >= 1 && lanes <= 32 ? lanes : 0;
    };
    device.pcie = {PcieGeneration(link("current_link_speed")), width("current_link_width"),
                   PcieGeneration(link("max_link_speed")), width("max_link_width")};
    devices.emplace(*address, std::move(device));
  }
  return devices;
}

Answer ReadAcs(const std::string& root, const std::vector<std::string>& bridges,
               std::vector<std::string>* redirecting) {
  Answer answer = bridges.empty() ? Answer::kUnknown : Answer::kNo;
  for (const std::string& bridge : bridges) {
    const absl::StatusOr<std::string> config =
        ReadFile(absl::StrCat(root, "/sys/bus/pci/devices/", bridge, "/config"));
    switch (config.ok() ? RedirectsPeers(*config) : Answer::kUnknown) {
      case Answer::kYes:
        redirecting->push_back(bridge);
        break;
      case Answer::kUnknown:
        answer = Answer::kUnknown;
        break;
      case Answer::kNo:
        break;
    }
  }
  return redirecting->empty() ? answer : Answer::kYes;
}

}  // namespace trainctl
