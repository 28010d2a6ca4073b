#include "runtime/topology/probe.h"

#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/utsname.h>

#include <algorithm>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "runtime/topology/device_links.h"
#include "runtime/topology/preflight_record.h"
#include "runtime/topology/sysfs.h"
#include "runtime/topology/topology_text.h"

namespace trainctl {
namespace {

using PciDevices = std::map<std::string, PciDevice>;

bool IsNvidiaGpu(const PciDevice& device) {
  return absl::StartsWith(device.device_id, "10de:") &&
         (absl::StartsWith(device.device_class, "0x0302") ||
          absl::StartsWith(device.device_class, "0x0300"));
}

PciPlace PlaceOf(const PciDevices& devices, const std::string& address) {
  const auto device = devices.find(address);
  return device == devices.end() ? PciPlace() : device->second.place;
}

// GPUs that only the bus shows: without a driver nothing else is known of them.
std::vector<Gpu> GpusOnTheBus(const PciDevices& devices, const std::string& problem) {
  std::vector<Gpu> gpus;
  for (const auto& [address, device] : devices) {
    if (IsNvidiaGpu(device) && gpus.size() < kMostGpus) {
      Gpu gpu;
      gpu.index = static_cast<int>(gpus.size());
      gpu.pci = address;
      gpu.pcie = device.pcie;
      gpu.problem = problem;
      gpus.push_back(std::move(gpu));
    }
  }
  return gpus;
}

void CompleteFromBus(const PciDevices& devices, std::vector<Gpu>* gpus) {
  for (Gpu& gpu : *gpus) {
    const auto found = devices.find(gpu.pci);
    if (found == devices.end()) {
      continue;
    }
    const PciDevice& device = found->second;
    gpu.device_id = device.device_id;
    if (device.place.numa >= 0) {
      gpu.numa = device.place.numa;
    }
    if (gpu.pcie.most_generation == 0) {
      gpu.pcie = device.pcie;
    }
  }
}

void CompleteNics(const VerbsSeen& verbs, Topology* out) {
  for (const VerbsPort& port : verbs.ports) {
    const std::string name =
        port.port == 1 ? port.device : absl::StrCat(port.device, ":", port.port);
    for (Nic& nic : out->nics) {
      if (!nic.rdma || nic.name != name) {
        continue;
      }
      nic.state = port.state == PortState::kUnknown ? nic.state : port.state;
      nic.link_layer = nic.link_layer == LinkLayer::kUnknown ? port.link_layer : nic.link_layer;
      nic.gdr = port.dma_buf;
      if (!port.gids.empty()) {
        nic.gids = port.gids;
      }
    }
  }
  for (Nic& nic : out->nics) {
    if (nic.rdma && out->peermem == Answer::kYes) {
      nic.gdr = Answer::kYes;
    }
  }
}

void FindLinks(const PciDevices& devices, const absl::StatusOr<NvmlSeen>& driver, Topology* out) {
  std::vector<PciPlace> gpus, nics;
  for (const Gpu& gpu : out->gpus) {
    gpus.push_back(PlaceOf(devices, gpu.pci));
  }
  for (const Nic& nic : out->nics) {
    nics.push_back(PlaceOf(devices, nic.pci));
  }
  out->links = LinksFromPlaces(*out, gpus, nics);
  for (Link& link : out->links) {
    for (size_t i = 0; driver.ok() && i < driver->links.size(); ++i) {
      const Link& seen = driver->links[i];
      if (seen.a == link.a && seen.b == link.b) {
        link.nvlinks = seen.nvlinks;
        link.p2p = seen.p2p;
        link.path = seen.path == PciPath::kUnknown ? link.path : seen.path;
      }
    }
  }
}

void FindAcs(const std::string& root, const PciDevices& devices, Topology* out) {
  std::set<std::string> bridges;
  const auto add = [&](const std::string& address) {
    if (const auto device = devices.find(address); device != devices.end()) {
      bridges.insert(device->second.bridges.begin(), device->second.bridges.end());
    }
  };
  for (const Gpu& gpu : out->gpus) {
    add(gpu.pci);
  }
  if (bridges.empty()) {
    return;
  }
  for (const Nic& nic : out->nics) {
    if (nic.rdma) {
      add(nic.pci);
    }
  }
  out->acs = ReadAcs(root, {bridges.begin(), bridges.end()}, &out->acs_bridges);
}

void ReadLimits(Topology* out) {
  struct statvfs shm;
  if (::statvfs("/dev/shm", &shm) == 0) {
    out->shm_mib = static_cast<int64_t>(shm.f_blocks * shm.f_frsize >> 20);
  }
  struct rlimit memlock;
  if (::getrlimit(RLIMIT_MEMLOCK, &memlock) == 0) {
    // Workers get the hard limit.
    out->memlock_kib =
        memlock.rlim_max == RLIM_INFINITY ? -1 : static_cast<int64_t>(memlock.rlim_max >> 10);
  }
}

}  // namespace

Topology TopologyFrom(const std::string& root, const absl::StatusOr<NvmlSeen>& driver,
                      const VerbsSeen& verbs) {
  Topology out;
  ReadNode(root, &out);
  const PciDevices devices = ReadPciDevices(root);
  out.nics = ReadNics(root, devices);
  if (driver.ok()) {
    out.gpus = driver->gpus;
    out.driver = driver->driver.empty() ? out.driver : driver->driver;
    out.cuda = driver->cuda;
  } else {
    const std::string why(driver.status().message());
    out.gpus = GpusOnTheBus(devices, why);
    out.problems.push_back(why);
  }
  CompleteFromBus(devices, &out.gpus);
  CompleteNics(verbs, &out);
  FindLinks(devices, driver, &out);
  FindAcs(root, devices, &out);
  out.problems.insert(out.problems.end(), verbs.problems.begin(), verbs.problems.end());
  return out;
}

Topology ProbeTopology() {
  const SignalsBlocked in_threads_of_the_driver;
  const absl::StatusOr<NvmlApi> api = LoadNvml();
  const absl::StatusOr<NvmlSeen> driver =
      api.ok() ? ProbeNvml(*api) : absl::StatusOr<NvmlSeen>(api.status());
  Topology out = TopologyFrom("", driver, ProbeVerbs());
  struct utsname machine;
  if (::uname(&machine) == 0) {
    out.node = machine.nodename;
    out.architecture = machine.machine;
  }
  ReadLimits(&out);
  out.bad_peer_access = RecordedPreflight(out);
  return out;
}

}  // namespace trainctl
