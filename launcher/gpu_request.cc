#include "launcher/gpu_request.h"

#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "launcher/flag_value.h"
#include "runtime/base/file.h"
#include "runtime/base/status.h"
#include "runtime/json/json_text.h"
#include "runtime/topology/fitness.h"
#include "runtime/topology/topology_text.h"

namespace trainctl {
namespace {

std::optional<std::string> Given(const std::vector<std::string>& env, const std::string& name) {
  const std::string prefix = absl::StrCat(name, "=");
  for (const std::string& entry : env) {
    if (absl::StartsWith(entry, prefix)) return entry.substr(prefix.size());
  }
  return std::nullopt;
}

std::map<std::string, std::string> NcclVariables(const std::vector<std::string>& env) {
  std::map<std::string, std::string> variables;
  for (const std::string& entry : env) {
    const size_t equals = entry.find('=');
    if (absl::StartsWith(entry, "NCCL_") && equals != std::string::npos) {
      variables[entry.substr(0, equals)] = entry.substr(equals + 1);
    }
  }
  return variables;
}

absl::StatusOr<Topology> ReadTopology(const std::string& file, const Topology& here) {
  constexpr size_t kMost = size_t{1} << 20;
  const absl::StatusOr<std::string> text = ReadFile(file, kMost);
  if (!text.ok()) return absl::InvalidArgumentError(text.status().message());
  ASSIGN_OR_RETURN(Topology written, ParseAnyTopology(*text, file));
  const absl::Status same = CheckSameNode(written, here);
  if (!same.ok()) return absl::FailedPreconditionError(absl::StrCat(file, ": ", same.message()));
  return written;
}

// A number of workers says nothing of GPUs, unless they are listed.
bool WantsGpus(const LaunchFlags& flags, const std::string& workers,
               const Surroundings& surroundings) {
  return flags.gpus.has_value() || workers == "gpu" || (workers == "auto" && surroundings.gpus > 0);
}

const char* FlagFor(const LaunchFlags& flags) {
  return flags.gpus.has_value()             ? "--gpus"
         : flags.nproc_per_node.has_value() ? "--nproc-per-node"
                                            : "nodes.workers";
}

}  // namespace

absl::StatusOr<bool> MergeGpus(const LaunchFlags& flags, const std::string& workers,
                               const Surroundings& surroundings, LaunchRequest* request) {
  GpuRequest wish;
  ASSIGN_OR_RETURN(wish.binding, ParseCpuBinding(flags.numa_binding.value_or("node")));
  if (!WantsGpus(flags, workers, surroundings)) {
    if (flags.topology.has_value() || flags.share_gpus) {
      return absl::InvalidArgumentError(
          absl::StrCat(flags.share_gpus ? "--share-gpus" : "--topology",
                       ": only for workers with GPUs: --gpus LIST, or --nproc-per-node gpu"));
    }
    return false;
  }
  if (flags.gpus.has_value() && (workers == "cpu" || flags.gpus->empty())) {
    return absl::InvalidArgumentError(
        absl::StrCat("--gpus: found \"", *flags.gpus, "\"",
                     workers == "cpu" ? ", and --nproc-per-node cpu" : ", expected 1,3 or UUIDs"));
  }
  int64_t count = 0;
  if (absl::SimpleAtoi(workers, &count)) {
    absl::StatusOr<int64_t> checked = ParseInteger(workers, 1, kMaxWorkersPerNode);
    if (!checked.ok()) return InFlag("--nproc-per-node", checked.status());
  } else if (!workers.empty() && workers != "gpu" && workers != "auto") {
    return InFlag("--nproc-per-node", ParseInteger(workers, 1, kMaxWorkersPerNode).status());
  }
  wish.gpus = flags.gpus.value_or("");
  wish.workers = static_cast<int>(count);
  wish.visible = Given(request->spec.env, "CUDA_VISIBLE_DEVICES");
  wish.several_nodes = request->role.several;
  wish.allowed_cpus = surroundings.allowed_cpus;
  wish.has_memory_policy = surroundings.has_memory_policy;
  wish.interfaces = surroundings.interfaces;
  wish.toolkit = Given(request->spec.env, "CUDA_VERSION").value_or("");
  wish.environment = NcclVariables(request->spec.env);
  Topology here = surroundings.topology();
  if (flags.topology.has_value()) {
    absl::StatusOr<Topology> written = ReadTopology(*flags.topology, here);
    if (!written.ok()) return InFlag("--topology", written.status());
    here = *std::move(written);
  }
  absl::StatusOr<GpuBinding> binding = BindGpus(here, wish);
  if (!binding.ok()) return InFlag(FlagFor(flags), binding.status());
  JobSpec& spec = request->spec;
  OwnPart& part = request->role.part;
  part.binding = binding->workers;
  part.devices = JsonText(TopologyDocument(binding->chosen));
  spec.transport_plan = JsonText(PlanDocument(binding->plan));
  if (!request->role.invited.empty()) {
    spec.gpu_wish = {true, wish.gpus, flags.numa_binding.value_or("node"), flags.share_gpus};
  }
  if (!flags.share_gpus) {
    for (const GpuWorker& worker : binding->workers.workers) spec.gpus.push_back(worker.uuid);
  }
  request->share_gpus = flags.share_gpus;
  request->gpus = *std::move(binding);
  return true;
}

}  // namespace trainctl
