// From flags, PET_* and a job file to the spec of a job and what the front end does beside it.
#ifndef TRAINCTL_LAUNCHER_LAUNCH_REQUEST_H_
#define TRAINCTL_LAUNCHER_LAUNCH_REQUEST_H_

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "launcher/command_line.h"
#include "launcher/coordinator/spec.h"
#include "launcher/flag_value.h"
#include "launcher/job_file.h"
#include "launcher/node_role.h"
#include "launcher/schedulers.h"
#include "runtime/security/tls_files.h"
#include "runtime/topology/gpu_binding.h"
#include "runtime/topology/topology.h"

namespace trainctl {

// What a launch depends on besides its flags.
struct Surroundings {
  std::string cwd;
  std::vector<std::string> env;  // "NAME=value"
  std::string state_folder;
  std::string trainer;  // path of train-worker
  std::string id_suffix;
  int gpus = 0;  // that this process may use, as far as it costs nothing to know
  int cpus = 1;
  // What this node has. Blocks as long as its drivers do.
  std::function<Topology()> topology = [] { return Topology(); };
  std::vector<int> allowed_cpus;          // rising; empty: not known
  bool has_memory_policy = false;         // somebody has said where this process has its memory
  std::vector<std::string> interfaces;    // of the network, the loopback too
  std::optional<NodeIdentity> scheduler;  // what started this process on this node, if one did
  IsOwnName is_own_name = [](const std::string&) { return false; };
};
// Of this process. FAILED_PRECONDITION if the current folder is gone or the
// environment names no place for state.
absl::StatusOr<Surroundings> SurroundingsNow();

// Which output is shown on the front end's own stdout and stderr.
struct ConsoleChoice {
  StreamChoice redirects;
  StreamChoice tee;
  std::optional<std::vector<int>> local_ranks;  // ascending
  bool Shows(int local_rank, int stream) const;
};

struct LaunchRequest {
  JobSpec spec;
  std::string train_config;  // text of JOB_FOLDER/train.json; empty: the job has none
  ConsoleChoice console;
  NodeRole role;
  std::optional<NodeIdentity> scheduler;  // what started this command, if one did
  // What the workers of this node get; nullopt: no GPU from us.
  std::optional<GpuBinding> gpus;
  bool share_gpus = false;  // also those that others use
  TlsFiles tls;  // of a job on several nodes; without any, the key is found when it is needed
};

// The file may be null. INVALID_ARGUMENT names flag, value and what was expected;
// FAILED_PRECONDITION: this machine has no GPU and the job asks for them. Looks whether the program
// exists; starts and writes nothing. REQUIRES: flags.program is not empty.
absl::StatusOr<LaunchRequest> MergeLaunch(const LaunchFlags& flags, const JobFile* file,
                                          const Surroundings& surroundings);

// Whether PROGRAM is a job file: its name ends in .yaml or .yml.
bool NamesJobFile(const LaunchFlags& flags);

// The part of a job's id that comes from its name: [A-Za-z0-9._-], at most 40 characters.
std::string IdStem(absl::string_view name);

}  // namespace trainctl

#endif  // TRAINCTL_LAUNCHER_LAUNCH_REQUEST_H_
