#include "runtime/topology/nvml_api.h"

#include <dlfcn.h>

#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/symbols.h"

namespace trainctl {
SignalsBlocked::SignalsBlocked() {
  sigset_t all;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before_);
}

SignalsBlocked::~SignalsBlocked() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

absl::StatusOr<NvmlApi> LoadNvml(const char* library) {
  void* handle = ::dlopen(library, RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* why = ::dlerror();
    return absl::UnavailableError(absl::StrCat("no NVIDIA driver library: ", why));
  }
  NvmlApi api{};
  Symbols symbols(handle);
  symbols.Required("nvmlInit_v2", &api.init);
  symbols.Required("nvmlShutdown", &api.shutdown);
  symbols.Required("nvmlDeviceGetCount_v2", &api.device_count);
  symbols.Required("nvmlDeviceGetHandleByIndex_v2", &api.device);
  symbols.Required("nvmlDeviceGetName", &api.name);
  symbols.Required("nvmlDeviceGetUUID", &api.uuid);
  symbols.Required("nvmlDeviceGetPciInfo_v3", &api.pci);
  symbols.Required("nvmlDeviceGetMemoryInfo", &api.memory);
  symbols.Optional("nvmlErrorString", &api.error_text);
  symbols.Optional("nvmlSystemGetDriverVersion", &api.driver_version);
  symbols.Optional("nvmlSystemGetCudaDriverVersion_v2", &api.cuda_version);
  symbols.Optional("nvmlDeviceGetCudaComputeCapability", &api.capability);
  symbols.Optional("nvmlDeviceGetNumaNodeId", &api.numa);
  symbols.Optional("nvmlDeviceGetCurrPcieLinkGeneration", &api.pcie_generation);
  symbols.Optional("nvmlDeviceGetCurrPcieLinkWidth", &api.pcie_width);
  symbols.Optional("nvmlDeviceGetMaxPcieLinkGeneration", &api.pcie_most_generation);
  symbols.Optional("nvmlDeviceGetMaxPcieLinkWidth", &api.pcie_most_width);
  symbols.Optional("nvmlDeviceGetNvLinkState", &api.link_state);
  symbols.Optional("nvmlDeviceGetNvLinkRemotePciInfo_v2", &api.link_peer);
  symbols.Optional("nvmlDeviceGetNvLinkRemoteDeviceType", &api.link_peer_type);
  symbols.Optional("nvmlDeviceGetFieldValues", &api.field_values);
  symbols.Optional("nvmlDeviceGetTopologyCommonAncestor", &api.ancestor);
  symbols.Optional("nvmlDeviceGetP2PStatus", &api.p2p);
  symbols.Optional("nvmlDeviceGetMigMode", &api.mig_mode);
  symbols.Optional("nvmlDeviceGetMaxMigDeviceCount", &api.mig_most);
  symbols.Optional("nvmlDeviceGetMigDeviceHandleByIndex", &api.mig_device);
  symbols.Optional("nvmlDeviceGetGpuFabricInfoV", &api.fabric);
  symbols.Optional("nvmlDeviceGetHandleByUUID", &api.device_by_uuid);
  symbols.Optional("nvmlDeviceGetMemoryInfo_v2", &api.memory2);
  symbols.Optional("nvmlDeviceGetComputeRunningProcesses_v3", &api.compute_processes);
  symbols.Optional("nvmlEventSetCreate", &api.event_set_create);
  symbols.Optional("nvmlEventSetFree", &api.event_set_free);
  symbols.Optional("nvmlDeviceRegisterEvents", &api.register_events);
  symbols.Optional("nvmlEventSetWait_v2", &api.event_wait);
  if (!symbols.missing().empty()) {
    ::dlclose(handle);
    return absl::UnavailableError(
        absl::StrCat(library, " has no ", symbols.missing(), ": the driver is too old"));
  }
  return api;
}

}  // namespace trainctl
