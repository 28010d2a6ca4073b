// The functions of the NVIDIA management library that we call, with declarations of our own:
// its header is often absent where its library is. Layouts are NVIDIA's binary interface.
#ifndef TRAINCTL_RUNTIME_TOPOLOGY_NVML_API_H_
#define TRAINCTL_RUNTIME_TOPOLOGY_NVML_API_H_

#include <signal.h>

#include <cstdint>

#include "absl/status/statusor.h"

namespace trainctl {

struct NvmlDeviceTag;
using NvmlDevice = NvmlDeviceTag*;
using NvmlReturn = int;
inline constexpr NvmlReturn kNvmlSuccess = 0;
inline constexpr NvmlReturn kNvmlNotSupported = 3;
inline constexpr NvmlReturn kNvmlDriverNotLoaded = 9;
inline constexpr NvmlReturn kNvmlGpuIsLost = 15;
inline constexpr NvmlReturn kNvmlVersionMismatch = 18;

struct NvmlPciInfo {
  char bus_id_legacy[16];
  unsigned domain, bus, device, pci_device_id, pci_subsystem_id;
  char bus_id[32];
};
static_assert(sizeof(NvmlPciInfo) == 68);

struct NvmlMemory {
  unsigned long long total, free, used;
};

struct NvmlFabric {
  unsigned version;
  unsigned char cluster_uuid[16];
  NvmlReturn status;
  unsigned clique;
  unsigned char state;  // 0 not supported, 1 not started, 2 in progress, 3 completed
  unsigned health_mask;
};
static_assert(sizeof(NvmlFabric) == 36);
inline constexpr unsigned kNvmlFabricVersion = sizeof(NvmlFabric) | 2u << 24;

struct NvmlFieldValue {
  unsigned field, scope;
  long long timestamp, latency_us;
  unsigned value_type;
  NvmlReturn status;
  union {
    double as_double;
    unsigned as_unsigned;
    unsigned long long as_long;
  } value;
};
static_assert(sizeof(NvmlFieldValue) == 40);
inline constexpr unsigned kNvmlFieldLinkState = 165;
inline constexpr unsigned kNvmlFieldRecoveryAction = 230;

struct NvmlMemory2 {
  unsigned version;
  unsigned long long total, reserved, free, used;
};
static_assert(sizeof(NvmlMemory2) == 40);
inline constexpr unsigned kNvmlMemory2Version = sizeof(NvmlMemory2) | 2u << 24;

struct NvmlProcess {
  unsigned pid;
  unsigned long long used_bytes;  // all ones: not known
  unsigned gpu_instance, compute_instance;
};
static_assert(sizeof(NvmlProcess) == 24);
inline constexpr NvmlReturn kNvmlInsufficientSize = 7;

struct NvmlEvent {
  NvmlDevice device;
  unsigned long long type, data;
  unsigned gpu_instance, compute_instance;
};
static_assert(sizeof(NvmlEvent) == 32);
inline constexpr unsigned long long kNvmlEventXid = 0x8;
inline constexpr NvmlReturn kNvmlTimeout = 10;
struct NvmlEventSetTag;
using NvmlEventSet = NvmlEventSetTag*;

// Null: this version of the library has no such function. The first block is never null after
// LoadNvml.
struct NvmlApi {
  NvmlReturn (*init)();
  NvmlReturn (*shutdown)();
  NvmlReturn (*device_count)(unsigned*);
  NvmlReturn (*device)(unsigned index, NvmlDevice*);
  NvmlReturn (*name)(NvmlDevice, char*, unsigned size);
  NvmlReturn (*uuid)(NvmlDevice, char*, unsigned size);
  NvmlReturn (*pci)(NvmlDevice, NvmlPciInfo*);
  NvmlReturn (*memory)(NvmlDevice, NvmlMemory*);

  const char* (*error_text)(NvmlReturn);
  NvmlReturn (*driver_version)(char*, unsigned size);
  NvmlReturn (*cuda_version)(int*);
  NvmlReturn (*capability)(NvmlDevice, int* major, int* minor);
  NvmlReturn (*numa)(NvmlDevice, unsigned*);
  NvmlReturn (*pcie_generation)(NvmlDevice, unsigned*);
  NvmlReturn (*pcie_width)(NvmlDevice, unsigned*);
  NvmlReturn (*pcie_most_generation)(NvmlDevice, unsigned*);
  NvmlReturn (*pcie_most_width)(NvmlDevice, unsigned*);
  NvmlReturn (*link_state)(NvmlDevice, unsigned link, int* active);
  NvmlReturn (*link_peer)(NvmlDevice, unsigned link, NvmlPciInfo*);
  NvmlReturn (*link_peer_type)(NvmlDevice, unsigned link, int* type);  // 0 GPU, 1 NPU, 2 switch
  NvmlReturn (*field_values)(NvmlDevice, int count, NvmlFieldValue*);
  NvmlReturn (*ancestor)(NvmlDevice, NvmlDevice, int* level);
  NvmlReturn (*p2p)(NvmlDevice, NvmlDevice, int capability, int* status);
  NvmlReturn (*mig_mode)(NvmlDevice, unsigned* now, unsigned* pending);
  NvmlReturn (*mig_most)(NvmlDevice, unsigned* count);
  NvmlReturn (*mig_device)(NvmlDevice, unsigned index, NvmlDevice*);
  NvmlReturn (*fabric)(NvmlDevice, NvmlFabric*);
  NvmlReturn (*device_by_uuid)(const char*, NvmlDevice*);
  NvmlReturn (*memory2)(NvmlDevice, NvmlMemory2*);
  NvmlReturn (*compute_processes)(NvmlDevice, unsigned* count, NvmlProcess*);
  NvmlReturn (*event_set_create)(NvmlEventSet*);
  NvmlReturn (*event_set_free)(NvmlEventSet);
  NvmlReturn (*register_events)(NvmlDevice, unsigned long long types, NvmlEventSet);
  NvmlReturn (*event_wait)(NvmlEventSet, NvmlEvent*, unsigned timeout_ms);
};

// Around calls of NVML that may start threads: they inherit the caller's mask, and one that took
// signals would take those that the process waits for (runtime/base/loop.h), so that SIGTERM ended
// it at once. Restores the mask of the thread that made it.
class SignalsBlocked {
 public:
  SignalsBlocked();
  ~SignalsBlocked();
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_;
};

// Loads the library, which stays loaded. UNAVAILABLE: it is not installed, or one of the functions
// above without which nothing works is missing.
absl::StatusOr<NvmlApi> LoadNvml(const char* library = "libnvidia-ml.so.1");

}  // namespace trainctl

#endif  // TRAINCTL_RUNTIME_TOPOLOGY_NVML_API_H_
