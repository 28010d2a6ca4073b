#include "runtime/topology/nvml_probe.h"

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "runtime/topology/pci_path.h"
#include "runtime/topology/topology_text.h"

namespace trainctl {
namespace {

constexpr unsigned kMostNvlinks = 36;  // a link that a GPU has not answers with an error
constexpr int kPeerIsSwitch = 2;
constexpr unsigned kTextSize = 128;

template <typename Function>
std::string TextOf(Function function, NvmlDevice device) {
  char text[kTextSize] = {};
  return function(device, text, kTextSize - 1) == kNvmlSuccess ? text : "";
}

int NumberOf(NvmlReturn (*function)(NvmlDevice, unsigned*), NvmlDevice device, int otherwise) {
  unsigned number = 0;
  return function != nullptr && function(device, &number) == kNvmlSuccess && number < 1u << 20
             ? static_cast<int>(number)
             : otherwise;
}

PciPath PathOfAncestor(int level) {
  switch (level) {
    case 0:   // one board
    case 10:  // a single switch
      return PciPath::kPix;
    case 20:
      return PciPath::kPxb;
    case 30:
      return PciPath::kPhb;
    case 40:
      return PciPath::kNode;
    case 50:
      return PciPath::kSys;
    default:
      return PciPath::kUnknown;
  }
}

PeerAccess AccessOf(int status) {
  constexpr PeerAccess kByStatus[] = {PeerAccess::kOk,       PeerAccess::kChipset,
                                      PeerAccess::kGpu,      PeerAccess::kIoh,
                                      PeerAccess::kDisabled, PeerAccess::kUnsupported};
  return status >= 0 && status < 6 ? kByStatus[status] : PeerAccess::kUnknown;
}

class Probe {
 public:
  explicit Probe(const NvmlApi& api) : api_(api) {}

  absl::StatusOr<NvmlSeen> Run() {
    if (const NvmlReturn started = api_.init(); started != kNvmlSuccess) {
      return absl::UnavailableError(WhyNot(started));
    }
    unsigned count = 0;
    const NvmlReturn counted = api_.device_count(&count);
    if (counted == kNvmlSuccess) {
      ReadVersions();
      for (unsigned i = 0; i < std::min<unsigned>(count, kMostGpus); ++i) {
        AddGpu(i);
      }
      AddLinks();
    }
    api_.shutdown();
    if (counted != kNvmlSuccess) {
      return absl::UnavailableError(
          absl::StrCat("the NVIDIA driver does not count its GPUs: ", ErrorText(counted)));
    }
    return std::move(seen_);
  }

 private:
  std::string ErrorText(NvmlReturn code) const {
    return api_.error_text != nullptr ? api_.error_text(code) : absl::StrCat("NVML error ", code);
  }
  std::string WhyNot(NvmlReturn code) const {
    if (code == kNvmlDriverNotLoaded) {
      return "the NVIDIA kernel driver is not loaded; modprobe nvidia, and see dmesg if that fails";
    }
    if (code == kNvmlVersionMismatch) {
      return "the NVIDIA library and the loaded kernel driver are of different versions; reboot, "
             "or "
             "reload the driver's modules";
    }
    return absl::StrCat("the NVIDIA driver does not start: ", ErrorText(code));
  }

  void ReadVersions() {
    char text[kTextSize] = {};
    if (api_.driver_version != nullptr &&
        api_.driver_version(text, kTextSize - 1) == kNvmlSuccess) {
      seen_.driver = text;
    }
    int version = 0;
    if (api_.cuda_version != nullptr && api_.cuda_version(&version) == kNvmlSuccess) {
      seen_.cuda = absl::StrCat(version / 1000, ".", version % 1000 / 10);
    }
  }

  void AddGpu(unsigned index) {
    Gpu gpu;
    gpu.index = static_cast<int>(index);
    NvmlDevice device = nullptr;
    if (const NvmlReturn opened = api_.device(index, &device); opened != kNvmlSuccess) {
      gpu.problem = opened == kNvmlGpuIsLost
                        ? "it has fallen off the bus; reboot the node (dmesg names the Xid)"
                        : absl::StrCat("the driver does not open it: ", ErrorText(opened));
      devices_.push_back(nullptr);
      seen_.gpus.push_back(std::move(gpu));
      return;
    }
    gpu.name = TextOf(api_.name, device);
    gpu.uuid = TextOf(api_.uuid, device);
    NvmlPciInfo pci{};
    if (api_.pci(device, &pci) == kNvmlSuccess) {
      pci.bus_id[sizeof(pci.bus_id) - 1] = '\0';
      gpu.pci = NormalPciAddress(pci.bus_id).value_or("");
    }
    NvmlMemory memory{};
    const NvmlReturn answered = api_.memory(device, &memory);
    if (answered == kNvmlSuccess) {
      gpu.memory_mib = static_cast<int64_t>(memory.total >> 20);
    } else if (answered != kNvmlNotSupported) {
      gpu.problem = absl::StrCat("it does not tell its memory: ", ErrorText(answered));
    }
    int major = 0, minor = 0;
    if (api_.capability != nullptr && api_.capability(device, &major, &minor) == kNvmlSuccess) {
      gpu.sm = major * 10 + minor;
    }
    gpu.numa = NumberOf(api_.numa, device, -1);
    gpu.pcie.generation = NumberOf(api_.pcie_generation, device, 0);
    gpu.pcie.width = NumberOf(api_.pcie_width, device, 0);
    gpu.pcie.most_generation = NumberOf(api_.pcie_most_generation, device, 0);
    gpu.pcie.most_width = NumberOf(api_.pcie_most_width, device, 0);
    ReadMig(device, &gpu);
    ReadFabric(device, &gpu);
    ReadRecovery(device, &gpu);
    devices_.push_back(device);
    seen_.gpus.push_back(std::move(gpu));
  }

  void ReadMig(NvmlDevice device, Gpu* gpu) const {
    unsigned now = 0, pending = 0, most = 0;
    if (api_.mig_mode == nullptr || api_.mig_mode(device, &now, &pending) != kNvmlSuccess ||
        now == 0) {
      return;
    }
    gpu->mig_enabled = true;
    if (api_.mig_most == nullptr || api_.mig_device == nullptr ||
        api_.mig_most(device, &most) != kNvmlSuccess) {
      return;
    }
    for (unsigned i = 0; i < std::min(most, 16u); ++i) {
      NvmlDevice slice = nullptr;
      if (api_.mig_device(device, i, &slice) != kNvmlSuccess) {
        continue;  // a place without a slice
      }
      MigSlice& read = gpu->mig.emplace_back();
      read.uuid = TextOf(api_.uuid, slice);
      const std::string name = TextOf(api_.name, slice);
      const size_t profile = name.rfind("MIG ");
      read.profile = profile == std::string::npos ? "" : name.substr(profile + 4);
      NvmlMemory memory{};
      if (api_.memory(slice, &memory) == kNvmlSuccess) {
        read.memory_mib = static_cast<int64_t>(memory.total >> 20);
      }
    }
  }

  void ReadFabric(NvmlDevice device, Gpu* gpu) const {
    NvmlFabric fabric{};
    fabric.version = kNvmlFabricVersion;
    if (api_.fabric == nullptr || api_.fabric(device, &fabric) != kNvmlSuccess) {
      return;
    }
    if (fabric.state == 1) {
      gpu->fabric = FabricState::kNotStarted;
    } else if (fabric.state == 2) {
      gpu->fabric = FabricState::kInProgress;
    } else if (fabric.state == 3) {
      gpu->fabric = fabric.status == kNvmlSuccess ? FabricState::kReady : FabricState::kFailed;
    }
  }

  // What the driver itself says must be done before the GPU can be used again.
  void ReadRecovery(NvmlDevice device, Gpu* gpu) const {
    static constexpr const char* kActions[] = {
        "", "reset it (nvidia-smi --gpu-reset)", "reboot the node",
        "end all that uses it and its NVLink peers, and reset it",
        "end all that uses it, and reset it"};
    NvmlFieldValue value{};
    value.field = kNvmlFieldRecoveryAction;
    if (api_.field_values == nullptr || api_.field_values(device, 1, &value) != kNvmlSuccess ||
        value.status != kNvmlSuccess || value.value.as_unsigned < 1 ||
        value.value.as_unsigned > 4 || !gpu->problem.empty()) {
      return;
    }
    gpu->problem = absl::StrCat("the driver says that after an error it needs this: ",
                                kActions[value.value.as_unsigned]);
  }

  // Newer GPUs tell the state of a link as a field.
  bool IsLinkActive(NvmlDevice device, unsigned link) const {
    int active = 0;
    if (api_.link_state != nullptr && api_.link_state(device, link, &active) == kNvmlSuccess) {
      return active == 1;
    }
    NvmlFieldValue value{};
    value.field = kNvmlFieldLinkState;
    value.scope = link;
    return api_.field_values != nullptr && api_.field_values(device, 1, &value) == kNvmlSuccess &&
           value.status == kNvmlSuccess && value.value.as_unsigned == 1;
  }

  // Counts the links of one GPU: to switches into the GPU, to others into `to`.
  void CountLinks(size_t from, std::vector<int>* to) {
    for (unsigned link = 0; link < kMostNvlinks; ++link) {
      if (!IsLinkActive(devices_[from], link)) {
        continue;
      }
      NvmlPciInfo peer{};
      const bool known =
          api_.link_peer != nullptr && api_.link_peer(devices_[from], link, &peer) == kNvmlSuccess;
      peer.bus_id[sizeof(peer.bus_id) - 1] = '\0';
      const std::string address = known ? NormalPciAddress(peer.bus_id).value_or("") : "";
      int type = -1;
      if (api_.link_peer_type != nullptr &&
          api_.link_peer_type(devices_[from], link, &type) != kNvmlSuccess) {
        type = -1;
      }
      const auto other = std::find_if(seen_.gpus.begin(), seen_.gpus.end(), [&](const Gpu& gpu) {
        return !address.empty() && gpu.pci == address;
      });
      if (other != seen_.gpus.end()) {
        ++(*to)[static_cast<size_t>(other - seen_.gpus.begin())];
      } else if (type == kPeerIsSwitch || address.empty()) {
        ++seen_.gpus[from].switch_nvlinks;  // virtual machines hide the switches' addresses
      }
    }
  }

  PeerAccess AccessBetween(NvmlDevice a, NvmlDevice b) const {
    int read = -1, write = -1;
    constexpr int kRead = 0, kWrite = 1;
    if (api_.p2p == nullptr || api_.p2p(a, b, kRead, &read) != kNvmlSuccess ||
        api_.p2p(a, b, kWrite, &write) != kNvmlSuccess) {
      return PeerAccess::kUnknown;
    }
    return AccessOf(read != 0 ? read : write);
  }

  void AddLinks() {
    const size_t count = devices_.size();
    std::vector<std::vector<int>> direct(count, std::vector<int>(count, 0));
    for (size_t a = 0; a < count; ++a) {
      if (devices_[a] != nullptr) {
        CountLinks(a, &direct[a]);
      }
    }
    for (size_t a = 0; a < count; ++a) {
      for (size_t b = a + 1; b < count; ++b) {
        Link link;
        link.a = DeviceName(seen_.gpus[a]);
        link.b = DeviceName(seen_.gpus[b]);
        link.nvlinks = direct[a][b];
        int level = -1;
        if (devices_[a] != nullptr && devices_[b] != nullptr) {
          if (api_.ancestor != nullptr &&
              api_.ancestor(devices_[a], devices_[b], &level) == kNvmlSuccess) {
            link.path = PathOfAncestor(level);
          }
          link.p2p = AccessBetween(devices_[a], devices_[b]);
        }
        seen_.links.push_back(std::move(link));
      }
    }
  }

  const NvmlApi& api_;
  NvmlSeen seen_;
  std::vector<NvmlDevice> devices_;  // nullptr: does not open
};

}  // namespace

absl::StatusOr<NvmlSeen> ProbeNvml(const NvmlApi& api) { return Probe(api).Run(); }

}  // namespace trainctl
