// What GPUs can do at most, by their makers' data sheets (gpus.yaml, which is part of the program).
#ifndef TRAINCTL_RUNTIME_TOPOLOGY_GPU_CATALOGUE_H_
#define TRAINCTL_RUNTIME_TOPOLOGY_GPU_CATALOGUE_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "runtime/topology/topology.h"

namespace trainctl {

struct GpuModel {
  std::string name;                       // the driver's, without "NVIDIA "
  std::string device_id;                  // "10de:2330"
  double fp32 = 0;                        // TFLOP/s, dense
  std::optional<double> tf32, bf16, fp8;  // nullopt: it has none
  double memory_gb = 0;
  double bandwidth = 0;  // of memory, GB/s
  std::string interconnect;
  double interconnect_bandwidth = 0;  // GB/s, both directions together
  double watts = 0;
  std::string source;
};

absl::StatusOr<std::vector<GpuModel>> ParseGpuCatalogue(const std::string& text);
const std::vector<GpuModel>& GpuCatalogue();

// By the whole name, else (only if it has none) by device id; nullptr: not known, and nothing is to
// be guessed from a similar one.
const GpuModel* FindGpuModel(const Gpu& gpu);

// What to call it: the driver's name without "NVIDIA ", the catalogue's, the device id, or "GPU".
std::string ModelName(const Gpu& gpu);

}  // namespace trainctl

#endif  // TRAINCTL_RUNTIME_TOPOLOGY_GPU_CATALOGUE_H_
