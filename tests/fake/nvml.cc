// A driver's management library for tests: what it tells is in the text file that
// TRAINCTL_FAKE_NVML names, read anew at every call, so that a test may change the hardware while a
// job runs.
//
//   driver 580.65.06                    its version
//   cuda 13000                          the newest CUDA that it serves
//   init 9                              it does not start, with this error
//   gpu uuid=GPU-a name=NVIDIA_X memory=81920 numa=0 pci=0000:01:00.0 sm=90 used=4 open=0
//                                       open: the error with which it opens; 15 is a lost GPU
//   process GPU-a PID MIB               somebody computes on it
//   xid GPU-a 79                        each such line is an error, told once
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "runtime/topology/nvml_api.h"

namespace {

using trainctl::NvmlDevice;
using trainctl::NvmlReturn;

struct FakeGpu {
  std::map<std::string, std::string> facts;
  std::string Text(const char* key) const {
    const auto found = facts.find(key);
    return found == facts.end() ? "" : found->second;
  }
  int Number(const char* key) const { return std::atoi(Text(key).c_str()); }
};
struct FakeProcess {
  std::string uuid;
  unsigned pid = 0;
  unsigned long long mib = 0;
};
struct Hardware {
  std::string driver = "580.65.06";
  int cuda = 13000;
  int init = 0;
  std::vector<FakeGpu> gpus;
  std::vector<FakeProcess> processes;
  std::vector<std::pair<std::string, unsigned long long>> xids;
};

Hardware Read() {
  Hardware hardware;
  const char* path = std::getenv("TRAINCTL_FAKE_NVML");
  std::ifstream file(path == nullptr ? "" : path);
  std::string line;
  while (std::getline(file, line)) {
    std::istringstream words(line);
    std::string word;
    words >> word;
    if (word == "driver") {
      words >> hardware.driver;
    } else if (word == "cuda") {
      words >> hardware.cuda;
    } else if (word == "init") {
      words >> hardware.init;
    } else if (word == "gpu") {
      FakeGpu& gpu = hardware.gpus.emplace_back();
      while (words >> word)
        gpu.facts[word.substr(0, word.find('='))] = word.substr(word.find('=') + 1);
    } else if (word == "process") {
      FakeProcess& process = hardware.processes.emplace_back();
      words >> process.uuid >> process.pid >> process.mib;
    } else if (word == "xid") {
      auto& xid = hardware.xids.emplace_back();
      words >> xid.first >> xid.second;
    }
  }
  return hardware;
}

NvmlDevice Handle(size_t index) { return reinterpret_cast<NvmlDevice>(index + 1); }

NvmlReturn Find(NvmlDevice device, FakeGpu* gpu) {
  const Hardware hardware = Read();
  const size_t index = reinterpret_cast<size_t>(device) - 1;
  if (index >= hardware.gpus.size()) return 2;
  *gpu = hardware.gpus[index];
  return gpu->Number("open");
}

NvmlReturn Tell(const std::string& text, char* out, unsigned size) {
  std::snprintf(out, size, "%s", text.c_str());
  return trainctl::kNvmlSuccess;
}

std::string Spaced(std::string text) {
  for (char& c : text) c = c == '_' ? ' ' : c;
  return text;
}

std::atomic<size_t> told_xids{0};

}  // namespace

extern "C" {

NvmlReturn nvmlInit_v2() { return Read().init; }
NvmlReturn nvmlShutdown() { return trainctl::kNvmlSuccess; }
const char* nvmlErrorString(NvmlReturn) { return "an error of the fake driver"; }
NvmlReturn nvmlSystemGetDriverVersion(char* out, unsigned size) {
  return Tell(Read().driver, out, size);
}
NvmlReturn nvmlSystemGetCudaDriverVersion_v2(int* version) {
  *version = Read().cuda;
  return trainctl::kNvmlSuccess;
}
NvmlReturn nvmlDeviceGetCount_v2(unsigned* count) {
  *count = static_cast<unsigned>(Read().gpus.size());
  return trainctl::kNvmlSuccess;
}
NvmlReturn nvmlDeviceGetHandleByIndex_v2(unsigned index, NvmlDevice* device) {
  FakeGpu gpu;
  *device = Handle(index);
  return Find(*device, &gpu);
}
NvmlReturn nvmlDeviceGetHandleByUUID(const char* uuid, NvmlDevice* device) {
  const Hardware hardware = Read();
  for (size_t i = 0; i < hardware.gpus.size(); ++i) {
    if (hardware.gpus[i].Text("uuid") != uuid) continue;
    *device = Handle(i);
    return hardware.gpus[i].Number("open");
  }
  return 6;
}
NvmlReturn nvmlDeviceGetName(NvmlDevice device, char* out, unsigned size) {
  FakeGpu gpu;
  const NvmlReturn found = Find(device, &gpu);
  return found != 0 ? found : Tell(Spaced(gpu.Text("name")), out, size);
}
NvmlReturn nvmlDeviceGetUUID(NvmlDevice device, char* out, unsigned size) {
  FakeGpu gpu;
  const NvmlReturn found = Find(device, &gpu);
  return found != 0 ? found : Tell(gpu.Text("uuid"), out, size);
}
NvmlReturn nvmlDeviceGetPciInfo_v3(NvmlDevice device, trainctl::NvmlPciInfo* info) {
  FakeGpu gpu;
  const NvmlReturn found = Find(device, &gpu);
  return found != 0 ? found : Tell(gpu.Text("pci"), info->bus_id, sizeof(info->bus_id));
}
NvmlReturn nvmlDeviceGetMemoryInfo(NvmlDevice device, trainctl::NvmlMemory* memory) {
  FakeGpu gpu;
  const NvmlReturn found = Find(device, &gpu);
  memory->total = static_cast<unsigned long long>(gpu.Number("memory")) << 20;
  memory->used = static_cast<unsigned long long>(gpu.Number("used")) << 20;
  memory->free = memory->total - memory->used;
  return found;
}
NvmlReturn nvmlDeviceGetCudaComputeCapability(NvmlDevice device, int* major, int* minor) {
  FakeGpu gpu;
  const NvmlReturn found = Find(device, &gpu);
  *major = gpu.Number("sm") / 10;
  *minor = gpu.Number("sm") % 10;
  return found;
}
NvmlReturn nvmlDeviceGetNumaNodeId(NvmlDevice device, unsigned* node) {
  FakeGpu gpu;
  const NvmlReturn found = Find(device, &gpu);
  *node = static_cast<unsigned>(gpu.Number("numa"));
  return found;
}
NvmlReturn nvmlDeviceGetComputeRunningProcesses_v3(NvmlDevice device, unsigned* count,
                                                   trainctl::NvmlProcess* out) {
  FakeGpu gpu;
  if (const NvmlReturn found = Find(device, &gpu); found != 0) return found;
  unsigned filled = 0;
  for (const FakeProcess& process : Read().processes) {
    if (process.uuid != gpu.Text("uuid") || filled == *count) continue;
    out[filled].pid = process.pid;
    out[filled++].used_bytes = process.mib << 20;
  }
  *count = filled;
  return trainctl::kNvmlSuccess;
}
NvmlReturn nvmlEventSetCreate(trainctl::NvmlEventSet* events) {
  *events = reinterpret_cast<trainctl::NvmlEventSet>(1);
  return trainctl::kNvmlSuccess;
}
NvmlReturn nvmlEventSetFree(trainctl::NvmlEventSet) { return trainctl::kNvmlSuccess; }
NvmlReturn nvmlDeviceRegisterEvents(NvmlDevice, unsigned long long, trainctl::NvmlEventSet) {
  return trainctl::kNvmlSuccess;
}
NvmlReturn nvmlEventSetWait_v2(trainctl::NvmlEventSet, trainctl::NvmlEvent* event,
                               unsigned timeout_ms) {
  constexpr unsigned kStepMs = 10;
  for (unsigned waited = 0; waited < timeout_ms; waited += kStepMs) {
    const Hardware hardware = Read();
    if (told_xids < hardware.xids.size()) {
      const auto& [uuid, number] = hardware.xids[told_xids++];
      event->type = trainctl::kNvmlEventXid;
      event->data = number;
      nvmlDeviceGetHandleByUUID(uuid.c_str(), &event->device);
      return trainctl::kNvmlSuccess;
    }
    ::usleep(kStepMs * 1000);
  }
  return trainctl::kNvmlTimeout;
}

}  // extern "C"
