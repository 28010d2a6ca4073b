#include "runtime/topology/gpu_binding.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "runtime/base/status.h"
#include "runtime/topology/cpu_list.h"
#include "runtime/topology/fitness.h"
#include "runtime/topology/plan_parts.h"

namespace trainctl {
namespace {

constexpr int kShortestUuid = 8;  // of which a beginning may be given

const std::string& UuidOf(const Unit& unit) {
  return unit.slice != nullptr ? unit.slice->uuid : unit.gpu->uuid;
}

std::string NameOf(const Unit& unit) {
  return unit.slice == nullptr ? DeviceName(*unit.gpu)
                               : absl::StrCat(DeviceName(*unit.gpu), " ", unit.slice->profile);
}

std::string GpusHere(const Topology& topology) {
  std::vector<std::string> names;
  for (const Gpu& gpu : topology.gpus) names.push_back(DeviceName(gpu));
  return absl::StrJoin(names, ", ");
}

std::string WhyUnusable(const Gpu& gpu) {
  if (!gpu.problem.empty()) return gpu.problem;
  if (!IsUsable(gpu)) {
    return absl::StrCat("the fabric manager has not set up its NVSwitches (", WordOf(gpu.fabric),
                        "); start nvidia-fabricmanager of the driver's version, and see its log");
  }
  return gpu.mig_enabled && gpu.mig.empty()
             ? "it is in MIG mode and has no slice; make one (nvidia-smi mig -cgi)"
             : "";
}

absl::Status NoGpu(const Topology& topology) {
  std::vector<std::string> why;
  for (const Gpu& gpu : topology.gpus) {
    why.push_back(absl::StrCat(DeviceName(gpu), ": ", WhyUnusable(gpu)));
  }
  if (why.empty()) why = topology.problems;
  return absl::FailedPreconditionError(absl::StrCat(
      topology.gpus.empty() ? "this machine has no NVIDIA GPU that this process may use"
                            : "no GPU of this machine can be used",
      why.empty() ? "" : absl::StrCat(" (", absl::StrJoin(why, "; "), ")"),
      "; to train on CPUs, ask for cpu or a number of workers"));
}

// What an entry of a list means: a GPU (with MIG, all its slices) by index, or anything by UUID.
std::vector<Unit> Find(const Topology& topology, absl::string_view entry) {
  std::vector<Unit> found;
  int index = -1;
  const bool by_index = absl::SimpleAtoi(entry, &index);
  const bool whole_uuid = absl::StartsWith(entry, "GPU-") || absl::StartsWith(entry, "MIG-");
  for (const Gpu& gpu : topology.gpus) {
    const bool meant =
        by_index ? gpu.index == index
                 : whole_uuid && entry.size() >= kShortestUuid && absl::StartsWith(gpu.uuid, entry);
    if (meant && !gpu.mig_enabled) found.push_back({&gpu, nullptr});
    for (const MigSlice& slice : gpu.mig) {
      const bool slice_meant =
          whole_uuid && entry.size() >= kShortestUuid && absl::StartsWith(slice.uuid, entry);
      if (meant || slice_meant) found.push_back({&gpu, &slice});
    }
    if (meant && gpu.mig_enabled && gpu.mig.empty()) found.push_back({&gpu, nullptr});
  }
  return found;
}

absl::StatusOr<std::vector<Unit>> ParseList(const Topology& topology, const std::string& list) {
  std::vector<Unit> units;
  std::set<std::string> seen;
  for (absl::string_view entry : absl::StrSplit(list, ',')) {
    entry = absl::StripAsciiWhitespace(entry);
    const std::vector<Unit> found = Find(topology, entry);
    if (found.empty()) {
      if (topology.gpus.empty()) return NoGpu(topology);
      return absl::InvalidArgumentError(
          absl::StrCat("found \"", entry, "\", and this machine has ", GpusHere(topology),
                       "; give indices (1,3) or UUIDs (nvidia-smi -L shows both)"));
    }
    const bool one = !absl::StartsWith(entry, "GPU-") && !absl::StartsWith(entry, "MIG-");
    if (!one && found.size() > 1 && found[0].gpu != found.back().gpu) {
      return absl::InvalidArgumentError(
          absl::StrCat("found \"", entry, "\", which begins the UUID of several; give more of it"));
    }
    for (const Unit& unit : found) {
      if (const std::string why = WhyUnusable(*unit.gpu); !why.empty()) {
        return absl::FailedPreconditionError(absl::StrCat(NameOf(unit), " cannot be used: ", why));
      }
      if (!seen.insert(UuidOf(unit)).second) {
        return absl::InvalidArgumentError(
            absl::StrCat("found ", NameOf(unit), " twice in \"", list, "\""));
      }
      units.push_back(unit);
    }
  }
  return units;
}

// As CUDA reads it: what follows an entry that names nothing is not seen.
std::vector<Unit> ParseVisible(const Topology& topology, const std::string& visible) {
  std::vector<Unit> units;
  for (absl::string_view entry : absl::StrSplit(visible, ',')) {
    const std::vector<Unit> found = Find(topology, absl::StripAsciiWhitespace(entry));
    if (found.empty()) break;
    for (const Unit& unit : found) {
      if (WhyUnusable(*unit.gpu).empty()) units.push_back(unit);
    }
  }
  return units;
}

bool Contains(const std::vector<Unit>& units, const Unit& unit) {
  return std::any_of(units.begin(), units.end(),
                     [&](const Unit& u) { return u.gpu == unit.gpu && u.slice == unit.slice; });
}

struct Choice {
  std::vector<Unit> units;
  std::string order;  // why in this order; empty: the plan's
};

absl::StatusOr<Choice> Choose(const Topology& topology, const GpuRequest& request) {
  Choice choice;
  std::vector<Unit> visible;
  if (request.visible.has_value()) visible = ParseVisible(topology, *request.visible);
  if (!request.gpus.empty()) {
    ASSIGN_OR_RETURN(choice.units, ParseList(topology, request.gpus));
    choice.order = "as --gpus gives them";
    for (const Unit& unit : choice.units) {
      if (!request.visible.has_value() || Contains(visible, unit)) continue;
      return absl::InvalidArgumentError(absl::StrCat(
          "found ", NameOf(unit), ", which is not among CUDA_VISIBLE_DEVICES=", *request.visible));
    }
  } else if (request.visible.has_value()) {
    choice.units = visible;
    choice.order = "as CUDA_VISIBLE_DEVICES gives them";
    if (visible.empty() && !UnitsOf(topology).empty()) {
      return absl::FailedPreconditionError(absl::StrCat("CUDA_VISIBLE_DEVICES=", *request.visible,
                                                        " leaves none of this machine's ",
                                                        GpusHere(topology)));
    }
  } else {
    choice.units = UnitsOf(topology);
  }
  if (choice.units.empty()) return NoGpu(topology);
  return choice;
}

// The node as if it had no other GPUs.
Topology Only(const Topology& topology, const std::vector<Unit>& units) {
  Topology only = topology;
  only.gpus.clear();
  std::set<std::string> gone;
  for (const Gpu& gpu : topology.gpus) {
    Gpu kept = gpu;
    kept.mig.clear();
    bool chosen = false;
    for (const Unit& unit : units) {
      if (unit.gpu != &gpu) continue;
      chosen = true;
      if (unit.slice != nullptr) kept.mig.push_back(*unit.slice);
    }
    if (chosen) {
      only.gpus.push_back(std::move(kept));
    } else {
      gone.insert(DeviceName(gpu));
    }
  }
  only.links.erase(
      std::remove_if(only.links.begin(), only.links.end(),
                     [&](const Link& link) { return gone.count(link.a) + gone.count(link.b) > 0; }),
      only.links.end());
  return only;
}

std::vector<int> Both(const std::vector<int>& a, const std::vector<int>& b) {
  std::vector<int> both;
  std::set_intersection(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(both));
  return both;
}

// A run of neighbours for each: hyperthreads of one core are numbered far apart, cores are not.
std::vector<int> ShareOf(const std::vector<int>& cpus, size_t index, size_t count) {
  const size_t begin = cpus.size() * index / count;
  const size_t end = cpus.size() * (index + 1) / count;
  return {cpus.begin() + static_cast<int64_t>(begin), cpus.begin() + static_cast<int64_t>(end)};
}

class Binder {
 public:
  Binder(const Topology& topology, const GpuRequest& request, NodePlan* plan)
      : topology_(topology), request_(request), plan_(plan) {}

  void Bind(std::vector<GpuWorker>* workers) {
    plan_->binding_reason = Try(workers);
    for (size_t i = 0; i < workers->size(); ++i) {
      LocalRank& rank = plan_->ranks[i];
      rank.cpus = CpuListText((*workers)[i].cpus);
    }
  }

 private:
  // What people are told.
  std::string Try(std::vector<GpuWorker>* workers) {
    if (request_.binding == CpuBinding::kNone) return "not to CPUs, as --numa-binding none asks";
    if (topology_.numa.size() < 2 && request_.binding == CpuBinding::kNode) {
      return "not to CPUs, since all are of one NUMA node";
    }
    std::vector<std::vector<int>> cpus;
    std::map<int, size_t> on_node;
    for (const LocalRank& rank : plan_->ranks) {
      const std::vector<int> all = ParseCpuList(rank.cpus).value_or(std::vector<int>());
      if (all.empty()) return "not to CPUs, since the NUMA nodes of the GPUs are not known";
      cpus.push_back(request_.allowed_cpus.empty() ? all : Both(all, request_.allowed_cpus));
      if (cpus.back().empty()) {
        return absl::StrCat("not to CPUs, since of those allowed here (",
                            CpuListText(request_.allowed_cpus), ") none is of NUMA node ",
                            rank.numa, ", which has ", rank.device);
      }
      ++on_node[rank.numa];
    }
    const bool exclusive = request_.binding == CpuBinding::kExclusive;
    std::map<int, size_t> placed;
    bool confined = false;
    for (size_t i = 0; i < workers->size(); ++i) {
      const LocalRank& rank = plan_->ranks[i];
      const size_t sharers = on_node[rank.numa];
      confined = confined || cpus[i] != ParseCpuList(rank.cpus);
      if (exclusive && cpus[i].size() < sharers) {
        return absl::StrCat("not to CPUs, since NUMA node ", rank.numa, " has ", cpus[i].size(),
                            " for ", sharers, " workers");
      }
      if (exclusive) cpus[i] = ShareOf(cpus[i], placed[rank.numa]++, sharers);
    }
    for (size_t i = 0; i < workers->size(); ++i) {
      (*workers)[i].cpus = std::move(cpus[i]);
      if (!request_.has_memory_policy) (*workers)[i].numa = plan_->ranks[i].numa;
    }
    return absl::StrCat(exclusive ? "each to its share of the CPUs" : "to the CPUs",
                        " of the GPU's NUMA node",
                        confined ? ", as far as they are allowed here" : "",
                        request_.has_memory_policy ? "; memory is where numactl said"
                                                   : ", and memory is preferred from there");
  }

  const Topology& topology_;
  const GpuRequest& request_;
  NodePlan* plan_;
};

// By local rank, in the order that was asked for.
void Reorder(const Choice& choice, NodePlan* plan) {
  if (choice.order.empty()) return;
  std::vector<LocalRank> ranks;
  for (const Unit& unit : choice.units) {
    for (const LocalRank& rank : plan->ranks) {
      if (rank.uuid == UuidOf(unit)) ranks.push_back(rank);
    }
  }
  plan->ranks = std::move(ranks);
  plan->order_reason = choice.order;
}

}  // namespace

absl::StatusOr<CpuBinding> ParseCpuBinding(absl::string_view text) {
  if (text == "node") return CpuBinding::kNode;
  if (text == "exclusive") return CpuBinding::kExclusive;
  if (text == "none") return CpuBinding::kNone;
  return absl::InvalidArgumentError(
      absl::StrCat("--numa-binding: found \"", text, "\", expected node, exclusive or none"));
}

absl::StatusOr<GpuBinding> BindGpus(const Topology& topology, const GpuRequest& request) {
  ASSIGN_OR_RETURN(Choice choice, Choose(topology, request));
  RETURN_IF_ERROR(CheckDriver(topology, request.toolkit));
  if (const auto wanted = request.environment.find("NCCL_SOCKET_IFNAME");
      wanted != request.environment.end()) {
    RETURN_IF_ERROR(CheckSocketInterface(wanted->second, request.interfaces));
  }
  for (const Unit& unit : choice.units) {
    if (UuidOf(unit).empty()) {
      return absl::FailedPreconditionError(
          absl::StrCat(NameOf(unit),
                       ": the driver does not tell its UUID, by which workers are "
                       "given it"));
    }
  }
  if (request.workers > static_cast<int>(choice.units.size())) {
    return absl::InvalidArgumentError(
        absl::StrCat(request.workers, " workers, but only ", choice.units.size(), " GPU",
                     choice.units.size() == 1 ? "" : "s", " for them; each worker has its own"));
  }
  if (request.workers > 0) choice.units.resize(static_cast<size_t>(request.workers));
  PlanRequest plan_request;
  GpuBinding binding;
  // What is wrong with the others is of interest where all are wanted.
  const bool all = choice.order.empty() && choice.units.size() == UnitsOf(topology).size();
  binding.chosen = all ? topology : Only(topology, choice.units);
  plan_request.nodes = {binding.chosen};
  plan_request.several_nodes = request.several_nodes;
  plan_request.environment = request.environment;
  binding.plan = PlanTransport(plan_request);
  NodePlan* node = &binding.plan.nodes[0];
  Reorder(choice, node);
  for (const LocalRank& rank : node->ranks) {
    binding.workers.workers.push_back({rank.device, rank.uuid, -1, {}});
    binding.workers.slices = binding.workers.slices || absl::StartsWith(rank.uuid, "MIG-");
  }
  Binder(topology, request, node).Bind(&binding.workers.workers);
  for (const NcclSetting& setting : binding.plan.settings) {
    if (setting.who != NcclSetting::Who::kSet) continue;
    binding.workers.settings[setting.name] = setting.value;
  }
  return binding;
}

}  // namespace trainctl
