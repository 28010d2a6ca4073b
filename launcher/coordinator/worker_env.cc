#include "launcher/coordinator/worker_env.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <map>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "runtime/base/check.h"
#include "runtime/base/unit_environment.h"

namespace trainctl {
namespace {

using Environment = std::map<std::string, std::string>;

Environment UserEnvironment(const JobSpec& spec) {
  Environment env;
  for (const std::string& entry : spec.env) {
    const size_t equals = entry.find('=');
    if (equals == std::string::npos || equals == 0) continue;
    std::string name = entry.substr(0, equals);
    if (!BelongsToUnit(name)) env[std::move(name)] = entry.substr(equals + 1);
  }
  return env;
}

std::vector<std::string> Entries(const Environment& env) {
  std::vector<std::string> entries;
  entries.reserve(env.size());
  for (const auto& [name, value] : env) entries.push_back(absl::StrCat(name, "=", value));
  return entries;
}

// The kernel refuses an environment string of 128 KiB, and TensorFlow's names every worker.
constexpr int kLargestTfWorld = 1024;

// TensorFlow wants one address per worker. Rank 0's port is the held one; the others, which nobody
// can hold before their nodes are known, are the numbers after it.
// Empty if the world is too large for it.
std::string TfCluster(const EpochFormed& epoch) {
  if (epoch.world_size() > kLargestTfWorld) return "";
  constexpr int kFirstPort = 1024;
  constexpr int kPorts = 65536 - kFirstPort;
  std::vector<std::string> workers;
  for (const RankPlace& place : RanksOf(epoch)) {
    const int port = kFirstPort + (epoch.master_port - kFirstPort + place.rank) % kPorts;
    workers.push_back(absl::StrCat("\"", place.address, ":", port, "\""));
  }
  return absl::StrCat(R"({"cluster": {"worker": [)", absl::StrJoin(workers, ", "), "]}");
}

Environment CommonEnvironment(const JobSpec& spec, const EpochFormed& epoch) {
  Environment env = UserEnvironment(spec);
  const std::string world = absl::StrCat(epoch.world_size());
  const std::string port = absl::StrCat(epoch.master_port);
  env["WORLD_SIZE"] = world;
  env["GROUP_WORLD_SIZE"] = absl::StrCat(epoch.nodes.size());
  env["ROLE_NAME"] = spec.role;
  env["ROLE_WORLD_SIZE"] = world;
  env["MASTER_ADDR"] = epoch.master_address;
  env["MASTER_PORT"] = port;
  env["TORCHELASTIC_RUN_ID"] = spec.job_id;
  env["TORCHELASTIC_RESTART_COUNT"] = absl::StrCat(epoch.epoch.value);
  env["TORCHELASTIC_MAX_RESTARTS"] = absl::StrCat(spec.max_restarts);
  // Rank 0's process serves torch's store: the port is held for it, not served by us.
  env["TORCHELASTIC_USE_AGENT_STORE"] = "False";
  env["JAX_COORDINATOR_ADDRESS"] = absl::StrCat(epoch.master_address, ":", port);
  env["JAX_NUM_PROCESSES"] = world;
  env["TRAINCTL_JOB_ID"] = spec.job_id;
  env["TRAINCTL_EPOCH"] = absl::StrCat(epoch.epoch.value);
  if (spec.preemptible) env["TRAINCTL_PREEMPTIBLE"] = "1";
  env["TRAINCTL_CHECKPOINT_DIR"] = spec.checkpoint_folder;
  env["TRAINCTL_RESUME_FROM"] = spec.checkpoint_folder.empty() || epoch.resume_step < Step(0)
                                    ? ""
                                    : CheckpointPath(spec.checkpoint_folder, epoch.resume_step);
  // Where the user set one of these, the user's value stays.
  const auto old_name = env.find("NCCL_ASYNC_ERROR_HANDLING");
  const std::string async = old_name == env.end() ? "1" : old_name->second;
  env.emplace("TORCH_NCCL_ASYNC_ERROR_HANDLING", async);
  env.emplace("NCCL_ASYNC_ERROR_HANDLING", env["TORCH_NCCL_ASYNC_ERROR_HANDLING"]);
  return env;
}

// The one device of a worker that is to believe it is alone.
std::string VirtualDevice(const Environment& env, int local_rank) {
  const auto visible = env.find("CUDA_VISIBLE_DEVICES");
  if (visible != env.end()) {
    const std::vector<std::string> devices = absl::StrSplit(visible->second, ',');
    const auto index = static_cast<size_t>(local_rank);
    if (index < devices.size()) return devices[index];
  }
  return absl::StrCat(local_rank);
}

WorkerLaunch PlanWorker(const JobSpec& spec, const Environment& common, const RankPlace& place,
                        absl::string_view tf_cluster) {
  WorkerLaunch worker;
  worker.rank = place.rank;
  worker.local_rank = place.local_rank;
  const std::string seen = absl::StrCat(spec.virtual_local_rank ? 0 : place.local_rank);
  for (const std::string& argument : spec.command) {
    worker.argv.push_back(
        absl::StrReplaceAll(argument, {{"${local_rank}", absl::StrCat(place.local_rank)}}));
  }
  if (!spec.local_rank_argument.empty()) {
    worker.argv.push_back(absl::StrCat("--", spec.local_rank_argument, "=", seen));
  }
  Environment own;
  own["RANK"] = absl::StrCat(place.rank);
  own["LOCAL_RANK"] = seen;
  own["ROLE_RANK"] = absl::StrCat(place.rank);
  own["JAX_PROCESS_ID"] = absl::StrCat(place.rank);
  if (!tf_cluster.empty()) {
    own["TF_CONFIG"] =
        absl::StrCat(tf_cluster, R"(, "task": {"type": "worker", "index": )", place.rank, "}}");
  }
  if (spec.virtual_local_rank) {
    own["CUDA_VISIBLE_DEVICES"] = VirtualDevice(common, place.local_rank);
  }
  worker.env = Entries(own);
  return worker;
}

}  // namespace

VariableOwner OwnerOf(absl::string_view variable) {
  static constexpr const char* kPlanned[] = {
      "WORLD_SIZE",       "LOCAL_WORLD_SIZE", "GROUP_RANK",
      "GROUP_WORLD_SIZE", "ROLE_NAME",        "ROLE_WORLD_SIZE",
      "MASTER_ADDR",      "MASTER_PORT",      "JAX_COORDINATOR_ADDRESS",
      "JAX_NUM_PROCESSES"};
  static constexpr const char* kDefaults[] = {"TORCH_NCCL_ASYNC_ERROR_HANDLING",
                                              "NCCL_ASYNC_ERROR_HANDLING",
                                              "OMP_NUM_THREADS",
                                              "GLOO_SOCKET_IFNAME",
                                              "NCCL_SOCKET_IFNAME",
                                              "PYTHONFAULTHANDLER"};
  if (absl::StartsWith(variable, "TORCHELASTIC_") || absl::StartsWith(variable, "TRAINCTL_") ||
      std::find(std::begin(kPlanned), std::end(kPlanned), variable) != std::end(kPlanned)) {
    return VariableOwner::kPlan;
  }
  return std::find(std::begin(kDefaults), std::end(kDefaults), variable) != std::end(kDefaults)
             ? VariableOwner::kUserElsePlan
             : VariableOwner::kUser;
}

std::vector<std::string> ForOwnNode(const std::vector<std::string>& planned,
                                    const std::vector<std::string>& own) {
  Environment env;
  const auto take = [&env](const std::string& entry, bool replace) {
    const size_t equals = entry.find('=');
    if (equals == std::string::npos || equals == 0) return;
    std::string name = entry.substr(0, equals);
    if (replace || env.find(name) == env.end()) env[std::move(name)] = entry.substr(equals + 1);
  };
  for (const std::string& entry : own) {
    if (!BelongsToUnit(entry.substr(0, entry.find('=')))) take(entry, true);
  }
  for (const std::string& entry : planned) {
    const VariableOwner owner = OwnerOf(entry.substr(0, entry.find('=')));
    if (owner != VariableOwner::kUser) take(entry, owner == VariableOwner::kPlan);
  }
  return Entries(env);
}

std::string CheckpointPath(absl::string_view folder, Step step) {
  return absl::StrFormat("%s%sstep-%09d", folder, absl::EndsWith(folder, "/") ? "" : "/",
                         step.value);
}

WorkerPlanner::WorkerPlanner(const JobSpec& spec, const EpochFormed& epoch)
    : spec_(spec),
      epoch_(epoch),
      common_(CommonEnvironment(spec, epoch)),
      tf_cluster_(TfCluster(epoch)) {}

StartWorkers WorkerPlanner::Plan(size_t seat, int cores) const {
  const NodeShare& share = epoch_.nodes[seat];
  Environment common = common_;
  common["LOCAL_WORLD_SIZE"] = absl::StrCat(share.workers);
  common["GROUP_RANK"] = absl::StrCat(seat);
  // Where the user set one of these, the user's value stays.
  common.emplace("OMP_NUM_THREADS", absl::StrCat(std::max(1, cores / share.workers)));
  // A Python program that crashes, or is aborted because it hangs, then prints where it is.
  common.emplace("PYTHONFAULTHANDLER", "1");
  // Left to themselves, both take the first interface, or the one that the node's name leads to.
  if (epoch_.nodes.size() > 1 && !share.interface.empty()) {
    common.emplace("GLOO_SOCKET_IFNAME", share.interface);
    common.emplace("NCCL_SOCKET_IFNAME", absl::StrCat("=", share.interface));
  }
  StartWorkers start;
  start.node = share.node;
  start.epoch = epoch_.epoch;
  start.world_size = epoch_.world_size();
  start.cwd = spec_.cwd;
  start.log_folder = spec_.log_folder;
  start.hang_timeout = spec_.hang_timeout;
  start.memory_limit = spec_.memory_limit;
  start.process_limit = spec_.process_limit;
  start.log_quota = spec_.log_quota;
  start.env = Entries(common);
  for (int i = 0; i < share.workers; ++i) {
    const RankPlace place{share.first_rank + i, i, share.node, share.address};
    start.workers.push_back(PlanWorker(spec_, common, place, tf_cluster_));
  }
  return start;
}

StartWorkers PlanWorkers(const JobSpec& spec, const EpochFormed& epoch, absl::string_view node,
                         int cores) {
  const auto share = std::find_if(epoch.nodes.begin(), epoch.nodes.end(),
                                  [&](const NodeShare& s) { return s.node == node; });
  CHECK(share != epoch.nodes.end());
  return WorkerPlanner(spec, epoch).Plan(static_cast<size_t>(share - epoch.nodes.begin()), cores);
}

}  // namespace trainctl
