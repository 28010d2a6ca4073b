#include "launcher/schedulers.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "launcher/hosts.h"
#include "runtime/base/status.h"

namespace trainctl {
namespace {

constexpr int kMostNodes = 65536;

using Identity = absl::StatusOr<std::optional<NodeIdentity>>;

class Environment {
 public:
  explicit Environment(const std::map<std::string, std::string>& values) : values_(values) {}

  // The first of these that is set and not empty.
  std::string Text(std::initializer_list<const char*> names) const {
    for (const char* name : names) {
      if (const auto it = values_.find(name); it != values_.end() && !it->second.empty()) {
        return it->second;
      }
    }
    return "";
  }
  bool Has(const char* name) const { return !Text({name}).empty(); }
  absl::StatusOr<int> Number(std::initializer_list<const char*> names, int otherwise,
                             int least) const {
    for (const char* name : names) {
      if (!Has(name)) continue;
      int value = 0;
      if (!absl::SimpleAtoi(Text({name}), &value) || value < least || value > kMostNodes) {
        return absl::InvalidArgumentError(absl::StrCat(name, ": found \"", Text({name}),
                                                       "\", expected ", least, " to ", kMostNodes));
      }
      return value;
    }
    return otherwise;
  }

 private:
  const std::map<std::string, std::string>& values_;
};

absl::Status CheckRank(const NodeIdentity& identity, const char* variable) {
  if (identity.node_count == 0 || identity.node_rank < identity.node_count) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(variable, ": node ", identity.node_rank,
                                                 " of a job of ", identity.node_count, " nodes"));
}

// A shell that somebody types into, although it runs within an allocation.
bool IsShell(const Environment& env) {
  const std::string name = env.Text({"SLURM_JOB_NAME"});
  const bool shell = name == "interactive" || name == "bash" || name == "sh" || name == "zsh";
  return shell && env.Text({"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "SLURM_NPROCS"}) == "1";
}

// The path of switches, if the address has more than the node's own name in it.
std::string SlurmTopology(const Environment& env) {
  const std::string address = env.Text({"SLURM_TOPOLOGY_ADDR"});
  const std::string pattern = env.Text({"SLURM_TOPOLOGY_ADDR_PATTERN"});
  return absl::StrContains(pattern, ".") ? address : "";
}

absl::Status TakeSlurmNodes(const Environment& env, NodeIdentity* identity) {
  const bool in_step = identity->on_every_node;
  const std::string list =
      in_step ? env.Text({"SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST"})
              : env.Text({"SLURM_JOB_NODELIST", "SLURM_NODELIST"});
  if (list.empty()) return absl::OkStatus();
  absl::StatusOr<std::vector<ListedNode>> nodes = ParseHostList(list);
  if (!nodes.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("SLURM_STEP_NODELIST: ", nodes.status().message()));
  }
  for (const ListedNode& node : *nodes) identity->nodes.push_back(node.name);
  if (static_cast<int>(identity->nodes.size()) != identity->node_count) {
    return absl::InvalidArgumentError(
        absl::StrCat("SLURM_STEP_NODELIST names ", identity->nodes.size(),
                     " nodes, SLURM_STEP_NUM_NODES says ", identity->node_count));
  }
  identity->head = identity->nodes.front();
  // The name is certain; the number is the step's in some versions and the allocation's in others.
  const auto own = std::find(identity->nodes.begin(), identity->nodes.end(), identity->node);
  if (own != identity->nodes.end()) {
    identity->node_rank = static_cast<int>(own - identity->nodes.begin());
  }
  return absl::OkStatus();
}

Identity FromSlurm(const Environment& env) {
  if (env.Text({"SLURM_JOB_ID", "SLURM_JOBID"}).empty() || !env.Has("SLURM_NODEID") ||
      IsShell(env)) {
    return std::nullopt;
  }
  NodeIdentity identity;
  identity.scheduler = "Slurm";
  identity.job_id = env.Text({"SLURM_JOB_ID", "SLURM_JOBID"});
  // The batch script itself runs once, on the first node.
  identity.on_every_node = env.Has("SLURM_STEP_ID");
  if (identity.on_every_node) {
    absl::StrAppend(&identity.job_id, ".", env.Text({"SLURM_STEP_ID"}));
  }
  identity.node = env.Text({"SLURMD_NODENAME"});
  ASSIGN_OR_RETURN(identity.node_rank, env.Number({"SLURM_NODEID"}, 0, 0));
  ASSIGN_OR_RETURN(
      identity.node_count,
      identity.on_every_node
          ? env.Number({"SLURM_STEP_NUM_NODES", "SLURM_JOB_NUM_NODES", "SLURM_NNODES"}, 1, 1)
          : env.Number({"SLURM_JOB_NUM_NODES", "SLURM_NNODES"}, 1, 1));
  RETURN_IF_ERROR(TakeSlurmNodes(env, &identity));
  RETURN_IF_ERROR(CheckRank(identity, "SLURM_NODEID"));
  ASSIGN_OR_RETURN(identity.local_id, env.Number({"SLURM_LOCALID"}, 0, 0));
  if (identity.on_every_node && env.Has("SLURM_STEP_TASKS_PER_NODE")) {
    absl::StatusOr<std::vector<int>> tasks =
        ParseRunLengths(env.Text({"SLURM_STEP_TASKS_PER_NODE"}));
    if (!tasks.ok() || static_cast<int>(tasks->size()) <= identity.node_rank) {
      return absl::InvalidArgumentError(absl::StrCat(
          "SLURM_STEP_TASKS_PER_NODE: found \"", env.Text({"SLURM_STEP_TASKS_PER_NODE"}),
          "\", expected the tasks of each of ", identity.node_count, " nodes, as in 2(x3),1"));
    }
    identity.local_tasks = (*tasks)[static_cast<size_t>(identity.node_rank)];
  }
  ASSIGN_OR_RETURN(identity.gpus, env.Number({"SLURM_GPUS_ON_NODE"}, 0, 0));
  ASSIGN_OR_RETURN(identity.cpus, env.Number({"SLURM_CPUS_ON_NODE"}, 0, 0));
  ASSIGN_OR_RETURN(identity.requeues, env.Number({"SLURM_RESTART_COUNT"}, 0, 0));
  identity.topology = SlurmTopology(env);
  return identity;
}

// "12.0;tcp://10.0.0.1,192.168.0.1:4567": the first address is where mpirun runs.
std::string AddressInUri(absl::string_view uri) {
  const size_t scheme = uri.find("tcp://");
  if (scheme == absl::string_view::npos) return "";
  uri.remove_prefix(scheme + 6);
  return std::string(uri.substr(0, uri.find_first_of(",:;")));
}

absl::Status CheckOnePerNode(const NodeIdentity& identity, int tasks) {
  if (identity.local_tasks == 1 || tasks == identity.local_tasks) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      identity.scheduler, " started ", identity.local_tasks,
      " processes on this node; start one on each (mpirun -N 1 trainctl launch …) and give the "
      "number of workers with --nproc-per-node"));
}

Identity FromOpenMpi(const Environment& env) {
  if (!env.Has("OMPI_COMM_WORLD_RANK")) return std::nullopt;
  NodeIdentity identity;
  identity.scheduler = "Open MPI";
  identity.job_id = env.Text({"OMPI_MCA_ess_base_jobid", "PMIX_NAMESPACE"});
  ASSIGN_OR_RETURN(identity.node_rank, env.Number({"OMPI_COMM_WORLD_RANK"}, 0, 0));
  ASSIGN_OR_RETURN(const int tasks, env.Number({"OMPI_COMM_WORLD_SIZE"}, 1, 1));
  ASSIGN_OR_RETURN(identity.local_tasks, env.Number({"OMPI_COMM_WORLD_LOCAL_SIZE"}, 1, 1));
  ASSIGN_OR_RETURN(identity.local_id, env.Number({"OMPI_COMM_WORLD_LOCAL_RANK"}, 0, 0));
  RETURN_IF_ERROR(CheckOnePerNode(identity, tasks));
  identity.node_count = tasks / identity.local_tasks;
  if (identity.local_tasks > 1) identity.node_rank = 0;
  RETURN_IF_ERROR(CheckRank(identity, "OMPI_COMM_WORLD_RANK"));
  identity.head = AddressInUri(env.Text({"OMPI_MCA_orte_hnp_uri"}));
  return identity;
}

Identity FromPmi(const Environment& env) {
  if (!env.Has("PMI_RANK") || !env.Has("PMI_SIZE")) return std::nullopt;
  NodeIdentity identity;
  identity.scheduler = "PMI";
  ASSIGN_OR_RETURN(identity.node_rank, env.Number({"PMI_RANK"}, 0, 0));
  ASSIGN_OR_RETURN(const int tasks, env.Number({"PMI_SIZE"}, 1, 1));
  ASSIGN_OR_RETURN(identity.local_tasks, env.Number({"MPI_LOCALNRANKS"}, 1, 1));
  ASSIGN_OR_RETURN(identity.local_id, env.Number({"MPI_LOCALRANKID"}, 0, 0));
  RETURN_IF_ERROR(CheckOnePerNode(identity, tasks));
  identity.node_count = tasks / identity.local_tasks;
  if (identity.local_tasks > 1) identity.node_rank = 0;
  RETURN_IF_ERROR(CheckRank(identity, "PMI_RANK"));
  return identity;
}

// A pod of an Indexed Job is called JOB-INDEX; its domain is the headless service's, if it has one.
Identity FromKubernetes(const Environment& env, absl::string_view full_name) {
  if (!env.Has("JOB_COMPLETION_INDEX") || !env.Has("KUBERNETES_SERVICE_HOST")) return std::nullopt;
  NodeIdentity identity;
  identity.scheduler = "Kubernetes";
  ASSIGN_OR_RETURN(identity.node_rank, env.Number({"JOB_COMPLETION_INDEX"}, 0, 0));
  const std::string own = full_name.empty() ? env.Text({"HOSTNAME"}) : std::string(full_name);
  const size_t dot = own.find('.');
  absl::string_view pod = absl::string_view(own).substr(0, dot);
  const std::string index = absl::StrCat("-", identity.node_rank);
  if (!absl::EndsWith(pod, index)) return identity;
  pod.remove_suffix(index.size());
  identity.job_id = std::string(pod);
  if (dot != std::string::npos) identity.head = absl::StrCat(pod, "-0", own.substr(dot));
  return identity;
}

}  // namespace

Identity IdentifyNode(const std::map<std::string, std::string>& environment,
                      absl::string_view full_name) {
  const Environment env(environment);
  // Slurm first: it sets the variables of PMI and Open MPI for its own tasks, too.
  ASSIGN_OR_RETURN(std::optional<NodeIdentity> found, FromSlurm(env));
  if (found.has_value()) return found;
  ASSIGN_OR_RETURN(found, FromOpenMpi(env));
  if (found.has_value()) return found;
  ASSIGN_OR_RETURN(found, FromPmi(env));
  if (found.has_value()) return found;
  return FromKubernetes(env, full_name);
}

int PortForJob(absl::string_view job_id) {
  constexpr uint32_t kFirst = 20000;
  constexpr uint32_t kPorts = 10000;
  uint32_t hash = 2166136261u;
  for (const char c : job_id) hash = (hash ^ static_cast<uint8_t>(c)) * 16777619u;
  return static_cast<int>(kFirst + hash % kPorts);
}

}  // namespace trainctl
