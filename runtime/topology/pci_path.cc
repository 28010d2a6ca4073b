#include "runtime/topology/pci_path.h"

#include <algorithm>
#include <cstdint>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"

namespace trainctl {
namespace {

bool Hex(absl::string_view text, uint32_t most, uint32_t* value) {
  return !text.empty() && text.size() <= 8 && absl::SimpleHexAtoi(text, value) && *value <= most &&
         std::all_of(text.begin(), text.end(), [](char c) { return absl::ascii_isxdigit(c); });
}

}  // namespace

PciPath PathBetween(const PciPlace& a, const PciPlace& b) {
  if (a.root.empty() || b.root.empty()) {
    return PciPath::kUnknown;
  }
  if (a.root == b.root) {
    if (!a.parent.empty() && a.parent == b.parent) {
      return PciPath::kPix;
    }
    if (a.switches.empty() || b.switches.empty() || a.switches[0] != b.switches[0]) {
      return PciPath::kPhb;
    }
    return a.switches == b.switches ? PciPath::kPix : PciPath::kPxb;
  }
  return a.numa == b.numa ? PciPath::kNode : PciPath::kSys;
}

PciPlace PlaceFromSysfs(absl::string_view device_path, int numa) {
  PciPlace place;
  place.numa = numa;
  std::vector<std::string> bridges;
  for (absl::string_view part : absl::StrSplit(device_path, '/', absl::SkipEmpty())) {
    if (absl::StartsWith(part, "pci")) {
      place.root = std::string(part);
    } else if (!place.root.empty() && NormalPciAddress(part).has_value()) {
      bridges.emplace_back(part);
    } else if (!place.root.empty() && bridges.empty()) {
      place.root = std::string(part);  // a bridge that is no PCI device, such as a VMD domain
    }
  }
  if (!bridges.empty()) {
    bridges.pop_back();  // the device itself
  }
  if (!bridges.empty()) {
    place.parent = bridges.back();
  }
  // From the device up: its port, then the switch's own upstream port, and so on.
  for (size_t above = 2; above <= bridges.size(); above += 2) {
    place.switches.insert(place.switches.begin(), bridges[bridges.size() - above]);
  }
  return place;
}

std::optional<std::string> NormalPciAddress(absl::string_view text) {
  std::vector<absl::string_view> parts = absl::StrSplit(text, ':');
  if (parts.size() == 2) {
    parts.insert(parts.begin(), "0");
  }
  const size_t dot = parts.back().find('.');
  uint32_t domain, bus, device, function;
  if (parts.size() != 3 || dot == absl::string_view::npos || !Hex(parts[0], 0xffffffff, &domain) ||
      !Hex(parts[1], 0xff, &bus) || !Hex(parts[2].substr(0, dot), 0x1f, &device) ||
      !Hex(parts[2].substr(dot + 1), 0xf, &function)) {
    return std::nullopt;
  }
  return absl::StrFormat("%04x:%02x:%02x.%x", domain, bus, device, function);
}

}  // namespace trainctl
