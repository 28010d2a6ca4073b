#include "runtime/topology/topology.h"

#include "absl/strings/str_cat.h"

namespace trainctl {

std::string DeviceName(const Gpu& gpu) { return absl::StrCat("GPU", gpu.index); }

const Link* FindLink(const Topology& topology, absl::string_view a, absl::string_view b) {
  for (const Link& link : topology.links) {
    if ((link.a == a && link.b == b) || (link.a == b && link.b == a)) {
      return &link;
    }
  }
  return nullptr;
}

const char* WordOf(PciPath path) {
  switch (path) {
    case PciPath::kPix:
      return "PIX";
    case PciPath::kPxb:
      return "PXB";
    case PciPath::kPhb:
      return "PHB";
    case PciPath::kNode:
      return "NODE";
    case PciPath::kSys:
      return "SYS";
    case PciPath::kUnknown:
      break;
  }
  return "?";
}

const char* WordOf(Answer answer) {
  switch (answer) {
    case Answer::kNo:
      return "no";
    case Answer::kYes:
      return "yes";
    case Answer::kUnknown:
      break;
  }
  return "unknown";
}

const char* WordOf(PeerAccess access) {
  switch (access) {
    case PeerAccess::kOk:
      return "ok";
    case PeerAccess::kChipset:
      return "chipset";
    case PeerAccess::kGpu:
      return "gpu";
    case PeerAccess::kIoh:
      return "ioh";
    case PeerAccess::kDisabled:
      return "disabled";
    case PeerAccess::kUnsupported:
      return "unsupported";
    case PeerAccess::kUnknown:
      break;
  }
  return "unknown";
}

const char* WordOf(FabricState state) {
  switch (state) {
    case FabricState::kNotStarted:
      return "not_started";
    case FabricState::kInProgress:
      return "in_progress";
    case FabricState::kReady:
      return "ready";
    case FabricState::kFailed:
      return "failed";
    case FabricState::kNone:
      break;
  }
  return "none";
}

const char* WordOf(LinkLayer layer) {
  switch (layer) {
    case LinkLayer::kEthernet:
      return "Ethernet";
    case LinkLayer::kInfiniBand:
      return "InfiniBand";
    case LinkLayer::kEfa:
      return "EFA";
    case LinkLayer::kUnknown:
      break;
  }
  return "unknown";
}

const char* WordOf(PortState state) {
  switch (state) {
    case PortState::kDown:
      return "down";
    case PortState::kInitializing:
      return "initializing";
    case PortState::kArmed:
      return "armed";
    case PortState::kActive:
      return "active";
    case PortState::kUnknown:
      break;
  }
  return "unknown";
}

int NumaNodeOf(const Topology& topology, int numa) {
  return numa < 0 && topology.numa.size() == 1 ? topology.numa[0].id : numa;
}

}  // namespace trainctl
