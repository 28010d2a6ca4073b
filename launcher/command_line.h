// The command line of trainctl: verbs, flags, what they mean, and the texts made from them (help,
// completion, manual page). Reads the environment (PET_*); starts nothing.
#ifndef TRAINCTL_LAUNCHER_COMMAND_LINE_H_
#define TRAINCTL_LAUNCHER_COMMAND_LINE_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace trainctl {

// Flags of launch and submit as typed; an empty optional was not given. Values are checked when
// they are merged with the job file (launch_request.h).
struct LaunchFlags {
  std::optional<std::string> nnodes, nproc_per_node, node_rank, master_addr, master_port;
  std::optional<std::string> rdzv_endpoint, rdzv_id, rdzv_backend, rdzv_conf, local_addr;
  std::optional<std::string> max_restarts, restart_window, monitor_interval, start_method, role;
  std::optional<std::string> log_dir, redirects, tee, local_ranks_filter;
  std::optional<std::string> lease, grace, join_timeout, orphan_timeout, hang_timeout;
  std::optional<std::string> memory_limit, process_limit, log_quota;
  std::optional<std::string> checkpoint_dir, checkpoint_every, plan;
  std::optional<std::string> name, daemon, local_rank_arg;
  std::optional<std::string> gpus, numa_binding, topology;
  std::optional<std::string> nodes, spares, node_name, daemon_port, tls_cert, tls_key, tls_ca, key;
  bool standalone = false;
  bool module = false;
  bool no_python = false;
  bool virtual_local_rank = false;
  bool share_gpus = false;
  bool preemptible = false;
  bool requeue_status = false;
  bool propagate_exit_code = false;
  bool preflight = false;
  bool detach = false;
  bool dry_run = false;
  bool json = false;
  std::vector<std::string> program;  // PROGRAM and its arguments, or JOB.yaml
};

// Flags of the verbs on existing jobs.
struct JobFlags {
  std::string job;
  std::optional<std::string> daemon;
  bool json = false;
  bool follow = false;                // logs
  std::optional<std::string> ranks;   // logs, signal
  std::optional<std::string> grep;    // logs
  std::optional<std::string> since;   // logs
  std::optional<std::string> signal;  // signal
  bool checkpoint = false;            // stop
  bool now = false;                   // stop
};

struct NodesFlags {
  std::string what;  // "drain" or "undrain"; empty: show them
  std::string node;
  std::optional<std::string> job;  // empty: all that run
  bool json = false;
};

struct TopoFlags {
  std::optional<std::string> from, svg;
  bool json = false;
  bool yaml = false;
  bool explain = false;
};

struct PreflightFlags {
  std::optional<std::string> deadline;
  bool json = false;
  bool first = false;  // something else follows, whose stdout it is
};

struct BenchFlags {
  std::string what;  // "allreduce"
  std::optional<std::string> backend, largest;
  LaunchFlags launch;  // where it runs
};

struct ChaosFlags {
  std::string job;
  std::optional<std::string> kill_rank, stop_rank;  // a rank, or "any"
  std::optional<std::string> kill_node;             // a node, or "any"
  std::optional<std::string> delay, every, times, seed;
};

struct KeyFlags {
  std::string what;  // "new"
  std::optional<std::string> path;
};

struct CommandLine {
  std::string verb;
  std::string help;  // not empty: this was asked for, print it
  LaunchFlags launch;
  JobFlags job;
  NodesFlags nodes;
  TopoFlags topo;
  PreflightFlags preflight;
  BenchFlags bench;
  KeyFlags key;
  ChaosFlags chaos;
  std::string shell;  // completion
};

// `words` are argv without the program's name. INVALID_ARGUMENT names the nearest verb or flag.
absl::StatusOr<CommandLine> ParseCommandLine(const std::vector<std::string>& words);
// Whether --json is among the flags, also of words that ParseCommandLine refuses.
bool AsksForJson(const std::vector<std::string>& words);

// One verb as the texts need it.
struct FlagText {
  std::vector<std::string> names;  // "-f", "--follow"
  std::string value;               // "N"; empty: takes none
  bool value_optional = false;
  std::string meaning;
  std::string group;
};
struct VerbText {
  std::string name;
  std::string usage;    // "launch [flags] PROGRAM [ARGS…]"
  std::string summary;  // one line
  std::string example;
  std::vector<FlagText> flags;
};
// In the order of `trainctl --help`.
std::vector<VerbText> DescribeVerbs();

}  // namespace trainctl

#endif  // TRAINCTL_LAUNCHER_COMMAND_LINE_H_
